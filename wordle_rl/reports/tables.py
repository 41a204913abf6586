"""The tables of a page, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.reports.pairs import Difference
from wordle_rl.reports.results import Estimate, Result
from wordle_rl.reports.run import Run, Setting, mapping
from wordle_rl.reports.solvers import OPTIMUM, OPTIMUM_TITLE
from wordle_rl.runs.folder import given_name

NONE = "–"
_LONGEST = 300  # characters of a cell


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose first column names its rows. note: how to read it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How a measure of play is called and written."""

    title: str
    scale: float = 100
    digits: int = 1


MEASURES = {
    "consistency": Measure(title="guesses that fit all clues, %"),
    "consistency_placed": Measure(title="guesses that keep each ✓ letter in its place, %"),
    "consistency_elsewhere": Measure(title="guesses that use each - letter elsewhere, %"),
    "consistency_absent": Measure(title="guesses without any x letter, %"),
    "bits_ratio": Measure(title="information of the guesses, % of the most possible"),
    "bits_gained": Measure(title="information of a guess, bits", scale=1, digits=2),
    "expected_remaining": Measure(title="possible secrets left after a guess", scale=1),
    "non_words": Measure(title="non-words, % of turns"),
    "repeats": Measure(title="repeated guesses, % of turns"),
    "format_compliance": Measure(title="answers with a readable guess, %"),
    "regret": Measure(title="guesses more than greedy entropy needs", scale=1, digits=2),
    "opener_bits": Measure(title="information of the first guess, bits", scale=1, digits=2),
    "opener_rank": Measure(title="rank of the first guess among allowed words", scale=1, digits=0),
    "distinct_openers": Measure(title="different first guesses, % of games"),
    "plurals": Measure(title="guesses that look like plurals, %"),
    "answer_guesses": Measure(title="guesses in the list of answers, %"),
    "tokens_per_answer": Measure(title="tokens of an answer", scale=1),
    "reward": Measure(title="reward of a game", scale=1, digits=2),
}


def percent(value: Estimate) -> str:
    """A share with its interval."""
    return _with_interval(value, 100, ".1f")


def mean(value: Estimate) -> str:
    """A mean with its interval."""
    return _with_interval(value, 1, ".2f")


def points(value: Estimate) -> str:
    """A difference of shares in percentage points, with its interval."""
    return _with_interval(value, 100, "+.1f")


def change(value: Estimate) -> str:
    """A difference of means with its interval."""
    return _with_interval(value, 1, "+.2f")


def _with_interval(value: Estimate, scale: float, form: str) -> str:
    text = f"{scale * value.value:{form}}"
    if value.low is None or value.high is None:
        return text
    # Blanks that do not break keep an interval in one line.
    return f"{text} ({scale * value.low:{form}}\u00a0to\u00a0{scale * value.high:{form}})"


def cut(text: object) -> str:
    """A text that is short enough for a cell."""
    text = str(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def players_table(results: Sequence[Result], what: str, *, optimum: bool) -> Table:
    """A row for each player. what: the secrets. optimum: whether the published one applies."""
    lost_as = 1 + max((result.max_turns for result in results), default=6)
    rows = [
        [
            result.label,
            str(result.games) if result.games else NONE,
            percent(result.wins),
            mean(result.guesses),
            *(_measure(result, name) for name in ("consistency", "bits_ratio")),
        ]
        for result in results
    ]
    if optimum:
        rows.append([OPTIMUM_TITLE, "2315", "100.0", mean(OPTIMUM), NONE, NONE])
    return Table(
        caption=f"Players on {what}, with 95 % intervals",
        columns=["player", "games", "wins, %", f"mean guesses, a loss as {lost_as}",
                 "fits all clues, %", "information, %"],
        rows=rows,
        note="Information is what the guesses were expected to tell, of the most possible.",
    )  # fmt: skip


def measures_table(results: Sequence[Result], caption: str) -> Table | None:
    """What guesses were like, a column for each player; with two of them, also the change."""
    rows = []
    for name, measure in MEASURES.items():
        values = [result.measures.get(name) for result in results]
        if all(value is None for value in values):
            continue
        row = [measure.title, *(_measure(result, name) for result in results)]
        if len(results) == 2:
            first, last = values
            if first is None or last is None:
                row.append(NONE)
            else:
                gain = round(measure.scale * (last - first), measure.digits) + 0.0  # no -0.0
                row.append(f"{gain:+.{measure.digits}f}")
        rows.append(row)
    if not rows:
        return None
    labels = [result.label for result in results]
    return Table(
        caption=caption, columns=["measure", *labels, *["change"] * (len(results) == 2)], rows=rows
    )


def _measure(result: Result, name: str) -> str:
    value, measure = result.measures.get(name), MEASURES[name]
    return NONE if value is None else f"{measure.scale * value:.{measure.digits}f}"


def difference_table(
    first: str, found: Sequence[tuple[str, Difference | None]], caption: str
) -> Table:
    """Each player against the first, secret by secret."""
    rows = []
    for label, one in found:
        if one is None:
            rows.append([label, "0", NONE, NONE, NONE, NONE, NONE])
            continue
        p_value = "<\u00a00.001" if one.p_value < 0.001 else f"{one.p_value:.3f}"
        rows.append([label, str(one.secrets), points(one.wins), change(one.guesses),
                     str(one.only_second), str(one.only_first), p_value])  # fmt: skip
    return Table(
        caption=caption,
        columns=["player", "shared secrets", f"wins, points more than {first}",
                 f"guesses, more than {first}", "secrets won more often",
                 "secrets won less often", "p"],
        rows=rows,
        note="Both play the same secrets, and intervals (95 %) are over the differences on each. p "
        "is of an exact sign test: how often chance alone would be as uneven.",
    )  # fmt: skip


def settings_table(settings: Sequence[Setting]) -> Table:
    return Table(
        caption="Settings that differ from the default",
        columns=["setting", "default", "this run"],
        rows=[[cut(part or NONE) for part in setting] for setting in settings],
        note=f"{NONE} is a setting that does not exist there.",
    )


def settings_between(runs: Sequence[Run]) -> Table | None:
    """The settings that differ between runs; None where they cannot be read."""
    known = [{s.key: s for s in run.settings} for run in runs if run.settings is not None]
    if len(known) != len(runs):
        return None
    rows = []
    for key in dict.fromkeys(key for found in known for key in found):
        default = next(found[key].default for found in known if key in found)
        values = [cut(found[key].value if key in found else default) for found in known]
        if len(set(values)) > 1:
            rows.append([key, *values])
    return Table(
        caption="Settings that differ between the runs",
        columns=["setting", *(run.name for run in runs)],
        rows=rows,
    )


def stages_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    def cell(stage: Mapping[str, Any], name: str) -> str:
        return NONE if stage.get(name) is None else cut(stage[name])

    names = ("algorithm", "player", "protocol", "secrets", "held_out", "prompt", "form")
    return Table(
        caption="The runs that made the model, oldest first",
        columns=["run", "algorithm", "teacher", "protocol", "secrets", "held out", "prompt",
                 "form"],
        rows=[[cut(given_name(str(stage["run"]))), *(cell(stage, name) for name in names)]
              for stage in stages],
        note="Secrets: how many words training games could have as their secret. Held out: how "
        "many validation and test words could not be among them.",
    )  # fmt: skip


def facts_table(run: Run) -> Table:
    """When and how a run was made."""
    manifest = run.manifest
    git, versions, seeds, computing, begun = (
        mapping(manifest.get(name))
        for name in ("git", "versions", "seeds", "computing", "init_from")
    )
    revision = str(git.get("revision", ""))
    rows = {
        "folder": run.folder.resolve().name,
        "status": manifest.get("status", "unknown"),
        "why it failed": manifest.get("status_reason"),
        "started": manifest.get("started"),
        "took": None if run.seconds is None else duration(run.seconds),
        "command": " ".join(manifest.get("command", [])),
        "resumed": len(manifest.get("resumes", [])) or None,
        "seed": seeds.get("seed"),
        "model": manifest.get("model"),
        "starts from": begun.get("run"),
        "precision": computing.get("precision"),
        "revision": revision[:12] + " with changes" * bool(revision and git.get("dirty")),
        "machine": manifest.get("platform"),
        "Python": manifest.get("python"),
        "torch": versions.get("torch"),
    }
    return Table(
        caption="The run",
        columns=["what", "value"],
        rows=[[name, cut(value)] for name, value in rows.items() if value not in (None, "")],
    )


def duration(seconds: float) -> str:
    """A time in the unit that people would use."""
    if not math.isfinite(seconds) or seconds < 0:
        return NONE
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
