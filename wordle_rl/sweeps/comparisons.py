"""The comparisons of a study: which arms are set against each other, and what came of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.effects import Cells, Effect, Spread, judge, measure_spread
from wordle_rl.sweeps.games import Games, format_arm
from wordle_rl.sweeps.measures import MEASURES, Measure, find_measure
from wordle_rl.sweeps.plan import ARM
from wordle_rl.sweeps.results import Result, Study
from wordle_rl.sweeps.space import Params, same_params

CONFIRMED = "winner against default, fresh seeds"
Pair = tuple[Params, Params]


def list_pairs(
    arms: Sequence[Params],
    default: Params | None,
    comparisons: Mapping[str, Sequence[Any]],
    *,
    strict: bool = True,
) -> dict[str, Pair]:
    """The two arms of each comparison by its name.

    arms: all of the study. default: fills in what a comparison leaves out. Without comparisons,
    every arm is compared with it. strict: whether an arm that the study has not raises ConfigError.
    Otherwise its comparison is left out, as in a study that was narrowed on the command line.
    """
    if not comparisons:
        others = [arm for arm in arms if default and not same_params(arm, default)]
        return {f"{format_arm(arm)} against {format_arm(default or {})}": (arm, default or {})
                for arm in others}  # fmt: skip
    found: dict[str, Pair] = {}
    for name, pair in comparisons.items():
        one, other = ({**(default or {}), **_named(arm)} for arm in pair)
        missing = [arm for arm in (one, other) if not any(same_params(arm, k) for k in arms)]
        if missing and not strict:
            continue
        if missing:
            have = "; ".join(format_arm(known) for known in arms)
            raise ConfigError(
                f"hydra.sweeper.analysis.comparisons.{name}: {format_arm(missing[0])} is no arm of "
                f"this study, which has {have}"
            )
        found[name] = (one, other)
    return found


def _named(arm: str | Mapping[str, Any]) -> Mapping[str, Any]:
    return {ARM: arm} if isinstance(arm, str) else arm


def compare(study: Study) -> list[Effect]:
    """The effects of a grid's comparisons, corrected together. Raises ConfigError."""
    if not study.identity.get("grid"):
        return []
    search = [r for r in study.results if not r.confirms]
    arms: list[Params] = []
    for result in search:
        if not any(same_params(result.arm, arm) for arm in arms):
            arms.append(result.arm)
    pairs = list_pairs(
        arms, study.identity.get("default"), study.analysis.get("comparisons") or {}, strict=False
    )
    return _judge(study, search, pairs)


def compare_confirmed(study: Study) -> list[Effect]:
    """The effect of the winner against the default with fresh seeds, if both ran."""
    confirmed = [r for r in study.results if r.confirms]
    return _judge(study, confirmed, {CONFIRMED: ({ARM: "winner"}, {ARM: "default"})})


def _judge(study: Study, results: Sequence[Result], pairs: Mapping[str, Pair]) -> list[Effect]:
    measure = read_measure(study)
    spreads: dict[str, Spread] = {}
    for name, (one, other) in pairs.items():
        cells = [
            measure_cells([r for r in results if same_params(r.arm, arm)], study.games, measure)
            for arm in (one, other)
        ]
        spread = measure_spread(*cells)
        if spread is not None:
            spreads[name] = spread
    return judge(spreads, measure, read_margin(study))


def read_measure(study: Study) -> Measure:
    return find_measure(study.analysis)


def read_margin(study: Study) -> float:
    """The largest difference that counts as none, in the measure's unit."""
    margin = study.analysis.get("margin")
    return read_measure(study).margin if margin is None else float(margin)


def measure_cells(trials: Sequence[Result], games: Games, measure: Measure) -> Cells:
    """The measure of an arm at each seed and secret: of a trial's last validation, or over time.

    A trial without games has one cell with its validation wins, if those are measured.
    """
    cells: dict[tuple[int, str], float] = {}
    for trial in trials:
        seed = int(trial.params.get("seed") or 0)
        if trial.state != "complete":
            continue
        played = games.get((trial.confirms, trial.number), ())
        if measure.of_game and played:
            last = max(game.step for game in played)
            first = 1 if measure.over_time else last
            by_secret: dict[str, list[float]] = {}
            for game in played:
                if game.step >= first:
                    by_secret.setdefault(game.secret, []).append(measure.of_game(game))
            cells |= {(seed, word): statistics.fmean(own) for word, own in by_secret.items()}
        elif (value := _read_figure(trial, measure)) is not None:
            cells[(seed, "")] = value
    return cells


def _read_figure(trial: Result, measure: Measure) -> float | None:
    if measure.figure:
        return trial.figures.get(measure.figure)
    return trial.value if measure is MEASURES["wins"] else None
