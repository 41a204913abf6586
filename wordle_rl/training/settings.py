"""Settings of trainer= and logger=."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.runs.instantiate import MOST, MOST_GAMES, MOST_SAMPLES, check_above_zero, check_range


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """How long to train, and what happens between steps. Intervals are in steps."""

    steps: int
    epochs: float | None = None
    validate_every: int = 10
    validation_temperature: float = 0.0
    validation_samples: int = 1
    validation_history: int = 0
    validation_games_mb: float = 50.0
    watch_every: int = 0
    checkpoint_every: int = 50
    games_every: int = 10
    show_games: int = 3
    report: bool = True
    report_limit: int | None = None
    tree: str | None = None
    memory_limit_gb: float | None = None
    device_memory_limit_gb: float | None = None

    def __post_init__(self) -> None:
        if self.validation_temperature != 0.0 and not 0.01 <= self.validation_temperature <= 10.0:
            raise ValueError(
                f"trainer.validation_temperature must be 0 (greedy) or 0.01..10, "
                f"not {self.validation_temperature}"
            )
        for name, least, most in (
            ("steps", 1, MOST), ("validate_every", 1, MOST), ("checkpoint_every", 1, MOST),
            ("games_every", 1, MOST), ("watch_every", 0, MOST), ("report_limit", 1, MOST),
            ("validation_samples", 1, MOST_SAMPLES), ("validation_history", 0, 99),
            ("validation_games_mb", 0, 1_000), ("show_games", 0, MOST_GAMES),
        ):  # fmt: skip
            if getattr(self, name) is not None:
                check_range(f"trainer.{name}", getattr(self, name), least, most)
        if self.epochs is not None:
            check_above_zero("trainer.epochs", self.epochs, 100_000)
        for name in ("memory_limit_gb", "device_memory_limit_gb"):
            if (limit := getattr(self, name)) is not None:
                check_above_zero(f"trainer.{name}", limit, 1_000_000, unit=" (null: no limit)")


@dataclass(frozen=True, kw_only=True)
class LoggerSettings:
    """Which Lightning loggers write beside metrics.jsonl."""

    tensorboard: bool = True
    wandb: bool = False
    wandb_project: str = "wordle-rl"
    tables: bool = True
