"""Settings of eval.py, see conf/eval.yaml."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.rollouts.forms import FORMS
from wordle_rl.runs.instantiate import (
    MOST,
    MOST_GAMES,
    MOST_SAMPLES,
    check_above_zero,
    check_choice,
    check_range,
    check_seed,
)

_MOST_SHOTS = 100


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What to evaluate and how, see conf/eval.yaml."""

    run: str | None = None
    checkpoint: str = "best"
    player: str | None = None
    form: str = "conversation"
    allow_mismatch: bool = False
    opener: str | None = None
    tree: str | None = None
    compare: bool = True
    shots: int = 0
    samples: int = 1
    limit: int | None = None
    time_limit: float | None = None
    show: int = 4
    seed: int = 0
    output_dir: str = "outputs"
    json: bool = False

    def __post_init__(self) -> None:
        if self.player is not None and self.run is not None:
            raise ValueError("player and run exclude each other: give one of them")
        if self.opener is not None:  # pages show words in capitals
            object.__setattr__(self, "opener", self.opener.lower())
        if self.player == "tree" and self.tree is None:
            raise ValueError("player=tree needs tree=<file of a decision tree>")
        if self.player == "tree" and self.opener is not None:
            raise ValueError("player=tree and opener exclude each other: a tree has its own opener")
        if self.checkpoint != "best" and self.run is None:
            raise ValueError(f"checkpoint={self.checkpoint} needs run=<its run>")
        check_choice("form", self.form, FORMS)
        check_seed("seed", self.seed)
        check_range("shots", self.shots, 0, _MOST_SHOTS)
        if self.shots and self.player is not None:
            raise ValueError("player and shots exclude each other: only a model reads examples")
        if self.shots and self.form == "tool":
            raise ValueError("shots needs form=conversation or fresh, not tool")
        check_range("samples", self.samples, 1, MOST_SAMPLES)
        check_range("show", self.show, 0, MOST_GAMES)
        if self.limit is not None:
            check_range("limit", self.limit, 1, MOST)
        if self.time_limit is not None:
            check_above_zero("time_limit", self.time_limit, MOST, unit=" seconds")

    def check_history(self) -> None:
        """Raise ValueError for settings of games that must begin with an empty board."""
        if self.opener is not None:
            raise ValueError("opener and history exclude each other: a game has one first guess")
        if self.player == "tree":
            raise ValueError("player=tree needs history=none: a tree knows only its own guesses")
