"""The effects of a study as a table of its page, and as effects.json for scripts and the index."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import read_object
from wordle_rl.sweeps.comparisons import read_margin, read_measure
from wordle_rl.sweeps.effects import UNDECIDED, Effect
from wordle_rl.sweeps.measures import Measure
from wordle_rl.sweeps.results import Result, Study

FILE = "effects.json"
_LEAST_P = 0.001  # a smaller one is not told apart
_DASH = "-"
_PLACES = 9
_COLUMNS = 100  # of Markdown


def format_effects(study: Study, effects: Sequence[Effect]) -> list[str]:
    """The paragraphs about a study's comparisons; none without effects."""
    if not effects:
        return []
    measure = read_measure(study)
    head = ("comparison", f"difference, {measure.unit}", "interval", "p", "verdict", "resolution",
            "seeds")  # fmt: skip
    rows = [
        (
            effect.name, _signed(effect.difference, measure), _interval(effect, measure),
            f"{effect.p:.3f}" if effect.p >= _LEAST_P else f"< {_LEAST_P}",
            f"**{effect.verdict}**" if effect.verdict != UNDECIDED else effect.verdict,
            f"{effect.resolution:.{measure.digits}f}", str(effect.seeds),
        )
        for effect in effects
    ]  # fmt: skip
    table = "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))
    return [*_explain(measure, effects, study), table]


def _explain(measure: Measure, effects: Sequence[Effect], study: Study) -> list[str]:
    secrets = max(effect.secrets for effect in effects)
    if secrets > 1:
        when = "in all validations after the start" if measure.over_time else "after the last step"
        where = f"{when}, on {secrets} secrets at equal seeds"
    else:
        where = "by the best checkpoint of each trial, at equal seeds"
    if measure.figure:
        where = "at equal seeds"
    by = "seed and secret" if secrets > 1 else "seed"
    lines = [
        f"- Measured: {measure.title}, {where}.",
        f"- p is corrected for all comparisons of this table (Holm), and errors count {by}.",
        "- An interval has the level at which Holm's method tested its comparison.",
        "- Resolution: a difference of this size would be found with a chance of 80 %.",
    ]
    if any(effect.verdict.startswith("equal") for effect in effects):
        margin = read_margin(study)
        lines.append(
            f"- Equal within {margin:g}: the whole interval is between -{margin:g} and "
            f"+{margin:g} {measure.unit}."
        )
    if (minutes := count_minutes(study.results)) is not None:
        done = sum(r.state in ("complete", "pruned") for r in study.results)
        lines.append(f"- Cost: {done} trials, {minutes:.0f} minutes.")
    return ["\n".join(wrap(line, "  ") for line in lines)]


def _signed(number: float, measure: Measure) -> str:
    return f"{number:+.{measure.digits}f}"


def _interval(effect: Effect, measure: Measure) -> str:
    return f"{_signed(effect.low, measure)} to {_signed(effect.high, measure)}"


def count_minutes(results: Sequence[Result]) -> float | None:
    """Minutes in which at least one trial ran, or None if no trial knows its times."""
    spans = sorted(
        (datetime.fromisoformat(r.figures["began"]), datetime.fromisoformat(r.figures["ended"]))
        for r in results
        if "began" in r.figures and "ended" in r.figures
    )
    if not spans:
        return None
    total, until = 0.0, spans[0][0]
    for began, ended in spans:
        total += max((ended - max(began, until)).total_seconds(), 0.0)
        until = max(until, ended)
    return total / 60


def describe_effects(study: Study, effects: Sequence[Effect]) -> dict[str, Any]:
    """The content of effects.json."""
    measure = read_measure(study)
    return {
        "question": study.question,
        "measure": measure.title,
        "unit": measure.unit,
        "digits": measure.digits,
        "trials": sum(r.state in ("complete", "pruned") for r in study.results),
        "minutes": count_minutes(study.results),
        "effects": [_round(asdict(effect)) for effect in effects],
    }


def describes_games(folder: Path) -> bool:
    """Whether a study's effects.json has effects that were computed from games."""
    path = folder / FILE
    effects = read_object(path).get("effects") if path.is_file() else None
    return isinstance(effects, list) and any(
        isinstance(effect, dict) and effect.get("secrets") not in (1, None) for effect in effects
    )


def _round(effect: dict[str, Any]) -> dict[str, Any]:
    """Without the digits in which processors differ."""
    return {k: round(v, _PLACES) if isinstance(v, float) else v for k, v in effect.items()}


def format_headline(about: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Question, effect, verdict and cost of a study, as cells of the index.

    about: the content of its effects.json. The effect is the one of the first comparison. Raises
    KeyError, TypeError and ValueError for other content.
    """
    trials, minutes = int(about["trials"]), about["minutes"]
    cost = f"{trials} trials"
    if minutes is not None and math.isfinite(minutes):
        cost += f", {minutes:.0f} minutes"
    effects = [Effect(**effect) for effect in about["effects"]]
    if not effects:
        return str(about["question"]), _DASH, _DASH, cost
    first, digits = effects[0], int(about["digits"])
    shown = (
        f"{first.name}: {first.difference:+.{digits}f} {about['unit']} "
        f"({first.low:+.{digits}f} to {first.high:+.{digits}f})"
    )
    verdict = first.verdict
    if rest := effects[1:]:
        decided = sum(effect.verdict != UNDECIDED for effect in rest)
        verdict += f"; {decided} of {len(rest)} others decided"
    return str(about["question"]), shown, verdict, cost


def wrap(text: str, indent: str = "") -> str:
    """indent: of all lines but the first."""
    return textwrap.fill(
        text, _COLUMNS, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
    )
