"""Settings of the export command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What to export. Paths start from the project's folder."""

    run: str
    format: Literal["peft", "merged", "mlx"]
    output: str | None = None
    checkpoint: Literal["best", "last", "start"] = "best"
    precision: Literal["auto", "bfloat16", "float16", "float32"] = "auto"

    def __post_init__(self) -> None:
        if self.format == "peft" and self.precision != "auto":
            raise ValueError(
                f"precision must be auto with format=peft, not {self.precision}: an adapter keeps "
                "its own"
            )
