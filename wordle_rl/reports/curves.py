"""What the curves of runs show: of how many games, and what a band is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wordle_rl.evaluation.intervals import Z95
from wordle_rl.reports.drawing import MOST_LINES, Bars, Curves, Line
from wordle_rl.reports.results import Estimate, Result
from wordle_rl.reports.run import Run

_MOST_PARTS = 20  # of a step's time
Levels = Sequence[tuple[str, float]]
BAND = "The band is the 95 % interval over secrets."


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """A measure that runs log, as a picture of training and validation games."""

    title: str
    unit: str
    train: str  # metric of the training games
    val: str  # metric of the validation games, "" for none
    percent: bool = True
    note: str = ""


_METRICS = (
    _Metric(
        title="Guesses that fit all clues", unit="guesses, %", train="skill/consistency",
        val="val/skill/consistency", note="Of the accepted guesses that had a clue before them.",
    ),
    _Metric(
        title="Information of the guesses", unit="of the most possible, %",
        train="skill/bits_ratio", val="val/skill/bits_ratio",
        note="What guesses were expected to tell, as a share of the best possible guess.",
    ),
    _Metric(
        title="Non-words", unit="turns, %", train="train/non_words", val="",
        note="Share of all turns of training games.",
    ),
    _Metric(
        title="Repeated guesses", unit="turns, %", train="train/repeats", val="",
        note="Share of all turns of training games with a guess made before in the same game.",
    ),
    _Metric(
        title="Readable answers", unit="turns, %", train="train/format", val="",
        note="Share of all turns of training games in which a guess could be read.",
    ),
    _Metric(
        title="Different first guesses", unit="of the games, %", train="train/distinct_openers",
        val="val/distinct_openers",
        note="Number of different first guesses by number of games. A collapse shows here first.",
    ),
    _Metric(
        title="Groups that taught nothing", unit="groups, %", train="groups/zero_spread", val="",
        note="Groups of rollouts whose rewards were all equal.",
    ),
    _Metric(
        title="Change of the policy", unit="nats", train="policy/kl", val="", percent=False,
        note="KL divergence from the reference, where the algorithm measures it.",
    ),
    _Metric(
        title="Entropy of the answers", unit="nats per token", train="policy/entropy", val="",
        percent=False, note="How undecided the policy is about its next token.",
    ),
)  # fmt: skip


def wins_of(run: Run, levels: Levels, points: Sequence[Result]) -> Curves:
    """Wins over steps. levels: of other players. points: reports on the test secrets."""
    lines = []
    steps, games = run.series("train/games")
    _, wins = run.series("train/wins")
    if steps and len(wins) == len(games) and all(count > 0 for count in games):
        window = _window(len(steps))
        rate = np.array(_smoothed(wins, window)) / _smoothed(games, window)
        lines.append(Line(label=_trained(window), steps=steps, values=rate.tolist(), colour=0))
    lines += _validations(run, "val/win_rate", 0)
    return Curves(
        title="Games won", note=f"{_count_games(run)} {BAND} Diamonds are the reports on test "
        "secrets, played greedily.", unit="games won, %", lines=lines, percent=True,
        levels=levels, points=[(r.label, r.step, r.wins) for r in points],
    )  # fmt: skip


def guesses_of_run(run: Run, levels: Levels, points: Sequence[Result]) -> Curves:
    """Mean guesses over steps, a lost game as one more than the turns."""
    return Curves(
        title="Mean number of guesses",
        note=f"A lost game counts as {run.max_turns + 1}. {_count_games(run)} {BAND}",
        unit="guesses", lines=_validations(run, "val/mean_guesses_with_losses", 1), levels=levels,
        points=[(r.label, r.step, r.guesses) for r in points],
    )  # fmt: skip


def reward_of(run: Run) -> Curves:
    """Rewards of training and validation games over steps."""
    lines = []
    steps, values = run.series("reward/mean")
    if steps:
        window = _window(len(steps))
        lines.append(
            Line(label=_trained(window), steps=steps, values=_smoothed(values, window), colour=0)
        )
    steps, values = run.series("val/reward")
    known = dict(zip(*run.series("val/reward_standard_error"), strict=True))
    if steps:
        halves = [Z95 * known[step] for step in steps if step in known]
        band = halves if len(halves) == len(steps) else []
        lines.append(
            Line(
                label="validation", steps=steps, values=values, colour=1, dots=True,
                low=[v - h for v, h in zip(values, band, strict=False)],
                high=[v + h for v, h in zip(values, band, strict=False)],
            )
        )  # fmt: skip
    return Curves(title="Reward of a game", note=BAND, unit="reward", lines=lines)


def metrics_of(run: Run) -> list[Curves]:
    """What the guesses were like, and how the updates went, over steps."""
    found = []
    for metric in _METRICS:
        lines = []
        for label, key, colour in (("training", metric.train, 0), ("validation", metric.val, 1)):
            steps, values = run.series(key) if key else ([], [])
            if steps:
                window = 1 if colour else _window(len(steps))
                values = _smoothed(values, window)
                label = label if colour else _trained(window)
                lines.append(
                    Line(label=label, steps=steps, values=values, colour=colour, dots=bool(colour))
                )
        if lines and any(any(line.values) for line in lines):
            found.append(
                Curves(
                    title=metric.title, note=metric.note, unit=metric.unit, lines=lines,
                    percent=metric.percent,
                )
            )  # fmt: skip
    return found


def memory_of(run: Run) -> Curves:
    """Memory in use after each step."""
    lines = [
        Line(label=label, steps=steps, values=values, colour=colour)
        for colour, (label, key) in enumerate(
            (("resident", "memory/resident_gb"), ("device", "memory/device_gb"))
        )
        if any((found := run.series(key))[1])
        for steps, values in [found]
    ]
    return Curves(
        title="Memory", note="GB of 10⁹ bytes after each step, the largest of all processes.",
        unit="GB", lines=lines,
    )  # fmt: skip


def time_of(run: Run) -> Bars:
    """Where the time of the steps went, most first."""
    keys = {key for record in run.metrics for key in record if key.startswith("time/")}
    spent = {key.removeprefix("time/"): sum(run.series(key)[1]) for key in keys}
    total = spent.pop("step", 0.0)
    rest = total - sum(value for name, value in spent.items() if name != "skill")
    if rest > 0:
        spent["the rest of the steps"] = rest
    ordered = sorted(spent.items(), key=lambda item: -item[1])[:_MOST_PARTS]
    return Bars(
        title="Time of the training steps",
        note="Seconds of all steps together, by what they were spent on. Validations, reports and "
        "checkpoints are not part of them.",
        unit="seconds", axis="part", flat=True, labels=[name for name, _ in ordered],
        series=[("seconds", [value for _, value in ordered])],
    )  # fmt: skip


def name_part(title: str, number: int, parts: int) -> str:
    """The title of one of several pictures that share it, so that each has a name of its own."""
    return f"{title}, part {number} of {parts}" if parts > 1 else title


def compare_curves(runs: Sequence[Run]) -> list[Curves]:
    """The validations of several runs, at most five in a picture."""
    parts = [runs[i : i + MOST_LINES] for i in range(0, len(runs), MOST_LINES)]
    kinds: Sequence[tuple[str, str, str, int | None, bool]] = (
        ("Games won", "val/win_rate", "games won, %", 0, True),
        ("Mean number of guesses", "val/mean_guesses_with_losses", "guesses", 1, False),
        ("Reward of a game", "val/reward", "reward", None, False),
        ("Guesses that fit all clues", "val/skill/consistency", "guesses, %", None, True),
        ("Information of the guesses", "val/skill/bits_ratio", "of the most possible, %", None,
         True),
    )  # fmt: skip
    return [
        Curves(
            title=name_part(title, number, len(parts)),
            note="Validation games of each run." + (f" {BAND}" if place is not None else ""),
            unit=unit, percent=percent,
            lines=[line for i, run in enumerate(part)
                   for line in _validations(run, key, place, run.name, i)],
        )
        for title, key, unit, place, percent in kinds
        for number, part in enumerate(parts, 1)
    ]  # fmt: skip


def _validations(
    run: Run, key: str, place: int | None, label: str = "validation", colour: int = 1
) -> list[Line]:
    """The curve of a validation metric. place: of its interval in run.validations, if any."""
    steps, values = run.series(key)
    if not steps:
        return []
    ends: list[Estimate] = []
    if place is not None:
        ends = [run.validations[int(s)][place] for s in steps if int(s) in run.validations]
    bands: Mapping[str, Any] = {}
    if len(ends) == len(steps) and all(e.low is not None and e.high is not None for e in ends):
        # A retry uses no turn, so a logged mean may differ from the boards' by a constant.
        shift = [value - end.value for value, end in zip(values, ends, strict=True)]
        bands = {
            "low": [(e.low or 0.0) + d for e, d in zip(ends, shift, strict=True)],
            "high": [(e.high or 0.0) + d for e, d in zip(ends, shift, strict=True)],
        }
    return [Line(label=label, steps=steps, values=values, colour=colour, dots=True, **bands)]


def _count_games(run: Run) -> str:
    """How many games a point is about."""
    parts = []
    if games := run.series("train/games")[1]:
        parts.append(f"{games[-1]:,.0f} training games in a step")
    if run.validation_games:
        parts.append(f"{run.validation_games:,} validation games")
    return f"{' and '.join(parts)}." if parts else ""


def _window(count: int) -> int:
    return max(1, count // 20)


def _trained(window: int) -> str:
    return "training" if window == 1 else f"training, mean of {window} steps"


def _smoothed(values: Sequence[float], window: int) -> list[float]:
    """Means over the last steps up to each one, so nothing later leaks into an earlier point."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    return ((total[ends] - total[begins]) / (ends - begins)).tolist()
