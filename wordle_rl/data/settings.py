"""Settings of data=: a file to train on, which of its rows, and whether held-out secrets stay."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which rows of which file. Without a path, a run plays the secrets of words=."""

    path: str | None = None
    split: str | None = None
    keep_held_out: bool = False

    def __post_init__(self) -> None:
        if self.path is None and (self.split is not None or self.keep_held_out):
            name = "keep_held_out" if self.split is None else "split"
            raise ValueError(f"data.{name} needs data=<file>")
