"""What the pictures of players show: wins, guesses, and the skill of each turn."""

from __future__ import annotations

from collections.abc import Sequence

from wordle_rl.reports.curves import Levels
from wordle_rl.reports.drawing import Bars, Curves, Dots, Line
from wordle_rl.reports.results import BY_TURN, Estimate, Result

_ENDS = "The ends of a line are its 95 % interval over secrets."
_TURNS = [str(number) for number in range(1, 7)]  # whose skill a run measures


def histogram(results: Sequence[Result], what: str) -> Bars:
    """How many games took how many guesses. what: the secrets."""
    with_counts = [result for result in results if result.histogram]
    labels = list(dict.fromkeys(label for result in with_counts for label in result.histogram))
    series = [
        (result.label, _shares([result.histogram.get(label, 0) for label in labels]))
        for result in with_counts
    ]
    return Bars(
        title="Games by number of guesses", note=f"Share of the games on {what}.",
        unit="games, %", axis="guesses", percent=True, labels=labels, series=series,
    )  # fmt: skip


def skill_by_turn(results: Sequence[Result], what: str) -> list[Curves]:
    """How well each turn was played. what: the secrets."""
    units = {"consistency": "guesses, %", "bits_ratio": "of the most possible, %"}
    titles = {"consistency": "Guesses that fit all clues", "bits_ratio": "Information"}
    found = []
    for name in BY_TURN:
        lines = []
        for colour, result in enumerate(results):
            points = [
                (float(turn), value)
                for turn, values in sorted(result.by_turn.items())
                if turn in _TURNS and (value := values.get(name)) is not None
            ]
            lines.append(
                Line(
                    label=result.label, steps=[turn for turn, _ in points],
                    values=[value for _, value in points], colour=colour, dots=True,
                )
            )  # fmt: skip
        found.append(
            Curves(
                title=f"{titles[name]}, by turn", note=f"Accepted guesses of each turn on {what}.",
                unit=units[name], axis="number of the guess", percent=True,
                lines=[line for line in lines if line.steps],
            )
        )  # fmt: skip
    return found


def standings(results: Sequence[Result], what: str, strong: int) -> Dots:
    """Wins of players with intervals. strong: how many of the first ones are runs."""
    return Dots(
        title="Games won", note=f"Share of the games on {what}. {_ENDS}", unit="games won, %",
        rows=[(result.label, result.wins) for result in results], strong=strong, percent=True,
    )  # fmt: skip


def guess_standings(results: Sequence[Result], what: str, strong: int, optimum: Levels) -> Dots:
    """Mean guesses of players with intervals. optimum: a title and a value, or nothing."""
    rows = [(result.label, result.guesses) for result in results]
    return Dots(
        title="Mean number of guesses",
        note=f"A lost game counts as one more than the turns. Games on {what}. {_ENDS}",
        unit="guesses", strong=strong,
        rows=[*rows, *((label, Estimate(value=value)) for label, value in optimum)],
    )  # fmt: skip


def _shares(counts: Sequence[int]) -> list[float | None]:
    total = sum(counts)
    return [count / total if total else None for count in counts]
