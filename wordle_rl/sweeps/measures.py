"""What a study compares: a measure of each game, or a figure of each trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.sweeps.games import REFUSED, UNREADABLE
from wordle_rl.sweeps.records import TEST_WINS
from wordle_rl.sweeps.results import JudgedGame


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number for each game, or for each trial."""

    title: str
    unit: str  # of a difference
    scale: float = 1.0  # from the number to the unit
    digits: int = 1
    margin: float = 2.0  # differences up to it count as none, unless the study says otherwise
    higher: str = "more"  # the verdict on an arm that has more of it
    lower: str = "less"
    of_game: Callable[[JudgedGame], float] | None = None
    figure: str | None = None  # of results.csv, for a measure of trials
    over_time: bool = False  # of the games of all validations after the start, not the last alone


def _count_guesses(game: JudgedGame) -> float:
    return len(game.guesses) + (not game.won)


def _share(count: Callable[[Sequence[str]], int]) -> Callable[[JudgedGame], float]:
    return lambda game: count(game.guesses) / len(game.guesses)


def _count_repeats(guesses: Sequence[str]) -> int:
    words = [guess for guess in guesses if guess != UNREADABLE]
    return len(words) - len(set(words))


def _count_refused(guesses: Sequence[str]) -> int:
    return sum(guess == UNREADABLE or guess.endswith(REFUSED) for guess in guesses)


MEASURES = {
    "wins": Measure(
        title="games won", unit="points", scale=100.0, higher="better", lower="worse",
        of_game=lambda game: float(game.won),
    ),
    "guesses": Measure(
        title="guesses, a lost game counts as one more than it has", unit="guesses", digits=2,
        margin=0.15, higher="worse", lower="better", of_game=_count_guesses,
    ),
    "repeats": Measure(
        title="share of a game's guesses that repeat an earlier one", unit="points", scale=100.0,
        of_game=_share(_count_repeats),
    ),
    "repeats_over_time": Measure(
        title="share of a game's guesses that repeat an earlier one", unit="points", scale=100.0,
        of_game=_share(_count_repeats), over_time=True,
    ),
    "refused": Measure(
        title="share of a game's answers that are no legal guess", unit="points", scale=100.0,
        of_game=_share(_count_refused),
    ),
    "idle_groups": Measure(
        title="groups whose games all have the same reward", unit="points", scale=100.0,
        figure="no_spread",
    ),
    "test_wins": Measure(
        title="test games won by the best checkpoint", unit="points", scale=100.0,
        higher="better", lower="worse", figure=TEST_WINS,
    ),
    "minutes": Measure(
        title="minutes of training", unit="minutes", scale=1 / 60, digits=2, margin=0.1,
        figure="seconds",
    ),
}  # fmt: skip


def find_measure(analysis: Mapping[str, Any]) -> Measure:
    """The measure in a study's settings of its analysis, which may be empty."""
    return MEASURES[analysis.get("measure") or "wins"]
