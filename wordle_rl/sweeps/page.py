"""Writes the page of a study, README.md in its folder, and the index of all studies beside it.

Only the text between the two markers is written again. What a person writes outside them stays.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from wordle_rl.runs.figures import save_figure
from wordle_rl.runs.files import write_bytes
from wordle_rl.sweeps.analysis import (
    ARM,
    UNDECIDED,
    WINS,
    Arm,
    Effect,
    Frame,
    Measure,
    Study,
    compare,
    estimate_importance,
    find_start,
    key_of,
    read_study,
)
from wordle_rl.sweeps.pictures import MOST_CURVES, PICTURE, draw_study
from wordle_rl.sweeps.progress import format_mean
from wordle_rl.sweeps.records import CONFIRMATION, RECORD, SEARCH
from wordle_rl.sweeps.space import format_params

PAGE = "README.md"
BEGIN, END = "<!-- results: made by wordle-rl study -->", "<!-- end of results -->"
CONCLUSION, UNWRITTEN = "## Conclusion", "*Not written yet.*"
_MOST_ROWS = 20
_LEAST_P = 0.001  # a smaller one is not told apart
_COLUMNS = 100  # of Markdown
_NEEDLESS_QUOTES = re.compile(r"='([\w.,/-]+)'$")  # around a value that Hydra reads without
_TEST, _GUESSES = "test_win_rate", "test_mean_guesses_with_losses"
_FIGURES = {  # column of an arm: figure of its trials, factor, digits, whether less the default's
    "games": ("games", 1, 0, False),
    "validation wins %": (WINS, 100, 1, False),
    "validation, to default": (WINS, 100, 1, True),
    "test wins %": (_TEST, 100, 1, False),
    "test, to default": (_TEST, 100, 1, True),
    "mean guesses (test)": (_GUESSES, 1, 2, False),
    "groups without spread %": ("no_spread", 100, 1, False),
    "games/s": ("games_per_second", 1, 1, False),
    "minutes": ("seconds", 1 / 60, 1, False),
}
_OF_SEED = {  # column of a trial: figure, factor, digits
    "games": ("games", 1, 0), "validation wins %": (WINS, 100, 1), "test wins %": (_TEST, 100, 1),
    "mean guesses (test)": (_GUESSES, 1, 2), "minutes": ("seconds", 1 / 60, 1),
}  # fmt: skip


def write_study(folder: Path) -> Path:
    """Write page and picture of a study, and the index if one is beside it. Returns the page.

    Raises ValueError in one line for a folder without a study that ran.
    """
    study = read_study(folder)
    figure = draw_study(study)
    if figure is not None:
        save_figure(figure, folder / PICTURE)
    path = folder / PAGE
    before = path.read_text(encoding="utf-8") if path.exists() else _begin_page(study)
    text = _render(
        "study.md.j2", **describe_study(study, compare(study)),
        importance=estimate_importance(folder, study),
        picture=None if figure is None else PICTURE,
    )  # fmt: skip
    write_bytes(path, _put_between(before, text).encode())
    index = folder.resolve().parent / PAGE
    if index.is_file() and BEGIN in index.read_text(encoding="utf-8"):
        write_index(index.parent)
    return path


def _begin_page(study: Study) -> str:
    first, *words = study.command
    begin = f"python {shlex.quote(first)}" if first.endswith(".py") else first
    typed = shlex.join(_NEEDLESS_QUOTES.sub(r"=\1", word) for word in words)
    return (
        f"# {study.name}\n\n{wrap(study.question)}\n\n    {begin} {typed}\n\n{BEGIN}\n{END}\n\n"
        f"{CONCLUSION}\n\n{UNWRITTEN}\n"
    )


def _put_between(page: str, text: str) -> str:
    if BEGIN not in page or END not in page:
        raise ValueError(f"{PAGE} must have the lines {BEGIN} and {END}, between which to write")
    return f"{page.partition(BEGIN)[0]}{BEGIN}\n\n{text.strip()}\n\n{END}{page.partition(END)[2]}"


def describe_study(study: Study, effects: Sequence[Effect]) -> dict[str, Any]:
    """What the template of a page shows."""
    search, confirmed = study.select(SEARCH), study.select(CONFIRMATION)
    states = search.state.value_counts()
    best, start = find_best(search), find_start(search)
    only_seeds = search.key.nunique() == 1 and "seed" in study.identity["params"]
    fresh = "The winner" if best else "The same"
    if (confirmed.key == key_of({ARM: "default"})).any():
        fresh = "The winner and the default"
    return {
        "study": study,
        "effects": effects,
        "secrets": max((effect.secrets for effect in effects), default=0),
        "minutes": count_minutes(study.trials),
        "done": int(study.trials.state.isin(["complete", "pruned"]).sum()),
        "states": [f"{states[s]} {s}" for s in ("complete", "pruned", "failed") if s in states],
        # Greedy games of one start are the same with every seed.
        "start": None if start is None else format_mean(start, 100, 1).removesuffix(" ± 0.0"),
        "arms": list_arms(search, study.identity.get("default")),
        "seeds": _list_seeds(search) if only_seeds else [],
        "best": best and format_params(best),
        "saved": measure_saving(search),
        "fresh": fresh,
        "confirmed": list_arms(confirmed, {ARM: "default"}) if len(confirmed) else [],
        "lineages": [[*t.lineage[t.lineage != ""].unique()] for t in (search, confirmed)],
        "most": MOST_CURVES if search.key.nunique() > MOST_CURVES else None,
    }


def _list_effects(effects: Sequence[Effect], measure: Measure) -> list[list[str]]:
    """A row for each comparison, titles first."""
    digits = measure.digits
    head = ["comparison", f"difference, {measure.unit}", "interval", "p", "verdict", "resolution",
            "seeds"]  # fmt: skip
    return [head] + [
        [
            one.name, f"{one.difference:+.{digits}f}",
            f"{one.low:+.{digits}f} to {one.high:+.{digits}f}",
            f"{one.p:.3f}" if one.p >= _LEAST_P else f"< {_LEAST_P}",
            one.verdict if one.verdict == UNDECIDED else f"**{one.verdict}**",
            f"{one.resolution:.{digits}f}", str(one.seeds),
        ]
        for one in effects
    ]  # fmt: skip


def list_arms(trials: Frame, default: Arm | None) -> list[list[str]]:
    """A row for each arm, titles first: means over seeds with their 95 % intervals.

    default: the arm with which the others are compared, seed by seed.
    """
    done = trials[trials.state == "complete"]
    base = done[done.key == key_of(default)].set_index("seed") if default is not None else done[:0]
    rows = []
    for key, own in trials.groupby("key", sort=False):
        ended = own[own.state == "complete"].set_index("seed")
        states = own.state.value_counts()
        seeds = [
            str(len(ended)),
            *(f"{states[s]} {s}" for s in ("pruned", "failed") if s in states),
        ]
        row = [format_params(own.arm.iloc[0]) or "-", ", ".join(seeds)]
        for figure, factor, digits, relative in _FIGURES.values():
            values = ended[figure] - base[figure] if relative and len(base) else ended[figure]
            cell = format_mean(values, factor, digits, sign="+" if relative else "")
            if relative and (not len(base) or key == key_of(default or {})):
                cell = "default" if len(base) else "-"
            row.append(cell.removesuffix(" ± 0") if figure == "games" else cell)
        rows.append((-ended[WINS].mean(), row))
    if len(rows) > _MOST_ROWS:
        rows = sorted(rows, key=lambda entry: (entry[0] != entry[0], entry[0]))[:_MOST_ROWS]
    return [["arm", "seeds", *_FIGURES], *(row for _, row in rows)]


def _list_seeds(trials: Frame) -> list[list[str]]:
    """A row for each trial of a study that varies seeds alone, titles first."""

    def cell(value: float, factor: float, digits: int) -> str:
        return "-" if pd.isna(value) else f"{factor * value:.{digits}f}"

    return [["seed", "state", *_OF_SEED]] + [
        [str(row["seed"]), row["state"], *(cell(row[n], *more) for n, *more in _OF_SEED.values())]
        for row in trials.to_dict("records")
    ]


def find_best(trials: Frame) -> Arm | None:
    """The arm with most wins among those with most complete seeds, so one lucky seed is no win."""
    wins = (
        trials[trials.state == "complete"].groupby("key", sort=False)[WINS].agg(["mean", "count"])
    )
    if wins.empty:
        return None
    best = wins[wins["count"] == wins["count"].max()]["mean"].idxmax()
    return trials[trials.key == best].arm.iloc[0]


def count_minutes(trials: Frame) -> float | None:
    """Minutes in which at least one trial ran, or None if no trial knows its times."""
    times = trials[(trials.began != "") & (trials.ended != "")][["began", "ended"]].to_numpy()
    spans = sorted(tuple(map(datetime.fromisoformat, row)) for row in times)
    total, until = 0.0, None
    for began, ended in spans:
        begin = began if until is None else max(began, until)
        total += max((ended - begin).total_seconds(), 0.0)
        until = ended if until is None else max(until, ended)
    return total / 60 if spans else None


def measure_saving(trials: Frame) -> float | None:
    """The percentage of the games of all trials in full length that pruning saved."""
    ended = trials[trials.state.isin(["complete", "pruned"])]
    if ended.state.nunique() < 2:
        return None
    longest = ended.games[ended.state == "complete"].max()
    return 100 * (1 - ended.games.sum() / (longest * len(ended)))


def write_index(root: Path) -> None:
    """Write what each study beside the index asked, found and cost into <root>/README.md."""
    path, entries = root / PAGE, []
    for folder in sorted(record.parent for record in root.glob(f"*/{RECORD}")):
        if (folder / PAGE).is_file():
            study = read_study(folder)
            entries.append(
                {
                    "study": study,
                    "folder": folder.name,
                    **_sum_up(compare(study), study.measure),
                    "done": int(study.trials.state.isin(["complete", "pruned"]).sum()),
                    "minutes": count_minutes(study.trials),
                    "conclusion": read_conclusion((folder / PAGE).read_text(encoding="utf-8")),
                    "picture": PICTURE if (folder / PICTURE).is_file() else None,
                }
            )
    before = path.read_text(encoding="utf-8")
    write_bytes(path, _put_between(before, _render("index.md.j2", entries=entries)).encode())


def _sum_up(effects: Sequence[Effect], measure: Measure) -> dict[str, str]:
    """The first effect, its verdict, and how many of the others are decided."""
    if not effects:
        return {"effect": "-", "verdict": "-"}
    first, *rest = effects
    _, (name, difference, interval, *_) = _list_effects([first], measure)
    decided = sum(effect.verdict != UNDECIDED for effect in rest)
    others = f"; {decided} of {len(rest)} others decided" if rest else ""
    shown = f"{name}: {difference} {measure.unit} ({interval})"
    return {"effect": shown, "verdict": first.verdict + others}


def read_conclusion(page: str) -> str:
    """The first paragraph of the conclusion that a person wrote, in one line."""
    written = page.partition(CONCLUSION)[2].strip()
    return " ".join(written.partition("\n\n")[0].partition("\n#")[0].split()) or UNWRITTEN


def wrap(text: str, indent: str = "") -> str:
    """indent: of all lines but the first."""
    return textwrap.fill(
        text, _COLUMNS, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join("| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *others))


def _render(template: str, **found: Any) -> str:
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    filters: dict[str, Callable[..., Any]] = {
        "wrap": wrap, "table": _table, "effect_rows": _list_effects,
    }  # fmt: skip
    engine.filters |= filters
    return engine.get_template(template).render(found)
