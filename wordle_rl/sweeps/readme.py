"""Writes README.md of a study: its verdicts, arms and picture, and the index beside its folder.

Only the text between the two markers is written again. What a person writes outside them stays.
"""

import itertools
import json
import math
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from wordle_rl.runs.figures import BLUE, GREY, INK, new_figure, save_figure
from wordle_rl.runs.files import json_bytes, render_template, write_bytes, write_json
from wordle_rl.sweeps.record import CONFIRMATION, RECORD, SEARCH
from wordle_rl.sweeps.trial import COMPLETE, FAILED, PRUNED, WINS
from wordle_rl.sweeps.verdicts import (
    NOTHING,
    UNDECIDED,
    Effect,
    Frame,
    Measure,
    Study,
    judge,
    read_study,
)

PAGE, PICTURE = "README.md", "curves.png"
BEGIN, END = "<!-- results: made by wordle-rl judge -->", "<!-- end of results -->"
CONCLUSION, UNWRITTEN = "## Conclusion", "*Not written yet.*"
_MOST_ROWS = 20
_MOST_CURVES = 10  # arms whose names can be read in one picture
_WIDTH = 40  # characters of a name in a line of the picture
_Y = "validation games won (%)"
_NOTE = (
    "Dot: a trial. Line: the mean over seeds. Bar: its 95 % interval (Student's t).\n"
    "An arm with a long name has the number of its first trial in study.json."
)
_MARKERS = "os^Dv<>pP*"
_LEAST_P = 0.001  # a smaller one is not told apart
_COLUMNS = 100  # of Markdown
_FIGURES = {  # column of an arm: figure of its trials, factor, digits, whether less the default's
    "games": ("games", 1, 0, False),
    "guesses": ("guesses", 1, 2, False),
    "validation wins %": (WINS, 100, 1, False),
    "validation, to default": (WINS, 100, 1, True),
    "test wins %": ("test_win_rate", 100, 1, False),
    "test, to default": ("test_win_rate", 100, 1, True),
    "mean guesses (test)": ("test_mean_guesses_with_losses", 1, 2, False),
    "groups without spread %": ("no_spread", 100, 1, False),
    "minutes": ("seconds", 1 / 60, 1, False),
}


def write_page(folder: Path) -> Path:
    """Write page, picture and effects of a study, and the index beside it. Returns the page."""
    study = read_study(folder)
    effects = judge(study)
    results, record = [asdict(effect) for effect in effects], study.about.get("effects")
    # Another machine may add in another order, which must not change a shipped file.
    if _round(results) != _round(record):
        write_json(folder / RECORD, {**study.about, "effects": results})
    figure = draw_study(study)
    if figure is not None:
        save_figure(figure, folder / PICTURE)
    path = folder / PAGE
    if not path.exists():
        write_bytes(path, _begin_page(study).encode())
    _put_results(path, "study.md.j2", **_describe(study, effects))
    index = folder.resolve().parent / PAGE
    if index.is_file() and BEGIN in index.read_text(encoding="utf-8"):
        write_index(index.parent)
    return path


def _round(effects: Any) -> Any:
    return json.loads(json_bytes(effects), parse_float=lambda text: round(float(text), 9))


def _format_command(study: Study) -> str:
    first, *words = study.about["command"]
    begin = f"python {shlex.quote(first)}" if first.endswith(".py") else first
    return f"{begin} {shlex.join(words)}"


def describe_source(study: Study, comparisons: int) -> str:
    """What a sentence about a comparison needs beside it to be cited."""
    intervals = "Intervals are of 95 %."
    if comparisons > 1:
        intervals = f"Intervals and p are corrected for all {comparisons} comparisons."
    games = study.trials.games.median()
    notes = "" if math.isnan(games) else f" The median trial trained on {games:,.0f} games."
    if study.measure.of_games is not None:
        notes += " Secrets are validation words."
    return f"{intervals}{notes} Command: {_format_command(study)}"


def _begin_page(study: Study) -> str:
    question = wrap(study.about["question"])
    return (
        f"# {study.name}\n\n{question}\n\n    {_format_command(study)}\n\n{BEGIN}\n"
        f"{END}\n\n{CONCLUSION}\n\n{UNWRITTEN}\n"
    )


def _put_results(path: Path, template: str, **values: Any) -> None:
    """Render a template between the markers of a page."""
    page = path.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise ValueError(f"{PAGE} must have the lines {BEGIN} and {END}, between which to write")
    filters: Any = {"wrap": wrap, "table": _table, "effect_rows": list_effects}
    text = render_template(Path(__file__).with_name(template), **values, **filters).strip()
    page = f"{page.partition(BEGIN)[0]}{BEGIN}\n\n{text}\n\n{END}{page.partition(END)[2]}"
    write_bytes(path, page.encode())


def _describe(study: Study, effects: Sequence[Effect]) -> dict[str, Any]:
    """What the template of a page shows."""
    search, reruns = study.select(SEARCH), study.select(CONFIRMATION)
    trials, start = study.trials[study.trials["round"] == SEARCH], find_start(search)
    metrics = study.about["analysis"].get("metrics") or []
    return {
        "study": study,
        "effects": effects,
        "silence": explain_silence(study),
        "secrets": max((effect.secrets for effect in effects), default=0),
        "cost": describe_cost(study),
        "states": _count_states(trials, COMPLETE, PRUNED, FAILED),
        # Greedy games of one start are the same with every seed.
        "start": None if start is None else format_mean(start, 100, 1).removesuffix(" ± 0.0"),
        "arms": list_arms(search, study.default, metrics),
        "confirmed": list_arms(reruns, "default", metrics) if len(reruns) else [],
        "lineages": [[*part.lineage[part.lineage != ""].unique()] for part in (search, reruns)],
        "most": _MOST_CURVES if search.arm.nunique() > _MOST_CURVES else None,
        "picture": PICTURE if search[WINS].notna().any() else None,
    }


def list_effects(effects: Sequence[Effect], measure: Measure) -> list[list[str]]:
    """A row for each comparison, titles first."""
    difference = f"difference, {measure.unit}"
    rows = [["comparison", difference, "interval", "p", "verdict", "resolution", "seeds"]]
    for effect in effects:
        row = _format_effect(effect, measure)
        decided = effect.verdict not in (UNDECIDED, NOTHING)
        rows.append([*row[:4], f"**{row[4]}**" if decided else row[4], *row[5:]])
    return rows


def describe_effect(effect: Effect, measure: Measure) -> str:
    """A comparison in a sentence that can be cited."""
    if effect.verdict == NOTHING:
        return f"{effect.name}: {NOTHING}, no game of the two arms differs or none is won."
    name, mean, interval, p, verdict, _, seeds = _format_effect(effect, measure)
    chance = p if p.startswith("<") else f"= {p}"
    on = f" on {effect.secrets:,} secrets" if effect.secrets > 1 else ""
    return (
        f"{name}: {mean} {measure.unit} ({interval}, p {chance}, {seeds} seeds{on}; "
        f"{measure.title}): {verdict}."
    )


def _format_effect(effect: Effect, measure: Measure) -> list[str]:
    """Name, difference, interval, p, verdict, resolution and seeds."""
    digits, cells = measure.digits, ["-", "-", effect.verdict, "-"]
    if effect.verdict != NOTHING:
        interval = f"{effect.low:+.{digits}f} to {effect.high:+.{digits}f}"
        p = f"{effect.p:.3f}" if effect.p >= _LEAST_P else f"< {_LEAST_P}"
        cells = [interval, p, effect.verdict, f"{effect.resolution:.{digits}f}"]
    return [effect.name, f"{effect.difference:+.{digits}f}", *cells, str(effect.seeds)]


def list_arms(trials: Frame, default: str | None, metrics: Sequence[str] = ()) -> list[list[str]]:
    """A row for each arm, titles first: means over seeds with their 95 % intervals.

    default: the arm with which the others are compared, seed by seed. Of many arms, the best.
    metrics: further columns, of the last quarter of the steps.
    """
    base = trials[(trials.state == COMPLETE) & (trials.arm == default)].set_index("seed")
    rows = []
    for arm, group in trials.groupby("arm", sort=False):
        runs = group[group.state == COMPLETE].set_index("seed")
        row = [arm, ", ".join([str(len(runs)), *_count_states(group, PRUNED, FAILED)])]
        for figure, factor, digits, relative in _FIGURES.values():
            cell = "-"
            if not relative:
                cell = format_mean(runs[figure], factor, digits)
            elif len(base):
                gaps = format_mean(runs[figure] - base[figure], factor, digits, sign="+")
                cell = "default" if arm == default else gaps
            row.append(cell.removesuffix(" ± 0") if figure == "games" else cell)
        for name in metrics:
            row.append(format_mean([values.get(name) for values in runs.metrics], 1, 3))
        rows.append((-runs[WINS].mean(), row))
    if len(rows) > _MOST_ROWS:
        rows = sorted(rows, key=lambda entry: (math.isnan(entry[0]), entry[0]))[:_MOST_ROWS]
    table = [["arm", "seeds", *_FIGURES, *metrics], *(row for _, row in rows)]
    # Columns without a number are left out.
    mask = [any({*cells} - {"-", "default"}) for _, *cells in zip(*table, strict=True)]
    return [list(itertools.compress(row, mask)) for row in table]


def _count_states(trials: Frame, *states: str) -> list[str]:
    counts = trials.state.value_counts()
    return [f"{counts[state]} {state}" for state in states if state in counts]


def format_mean(values: Any, scale: float, digits: int, sign: str = "") -> str:
    """A mean over seeds with its 95 % interval (Student's t), - without values."""
    sample = scale * pd.Series(values, dtype=float).dropna()
    if sample.empty:
        return "-"
    mean = f"{sample.mean():{sign}.{digits}f}"
    return f"{mean} ± {find_half(sample):.{digits}f}" if len(sample) > 1 else mean


def find_half(values: Any) -> float:
    """Half of the 95 % interval of a column's mean; 0 with one value."""
    from scipy.stats import t  # half a second, which no worker needs

    return float(t.ppf(0.975, len(values) - 1) * values.sem()) if len(values) > 1 else 0.0


def describe_cost(study: Study) -> str:
    trials = study.trials[study.trials.state != FAILED]
    return f"{len(trials)} trials, {trials.seconds.sum() / 60:.0f} minutes of training"


def write_index(root: Path) -> None:
    """Write what each study beside the index asked, found and cost into <root>/README.md."""
    pages = sorted(record.parent / PAGE for record in root.glob(f"*/{RECORD}"))
    entries = [_sum_up(page) for page in pages if page.is_file()]
    _put_results(root / PAGE, "index.md.j2", entries=entries)


def _sum_up(page: Path) -> dict[str, Any]:
    """A study in the index, with its first effect and how many of the others are decided."""
    study = read_study(page.parent)
    effect, verdict, seeds = "-", explain_silence(study), study.select(SEARCH).seed.nunique()
    if effects := judge(study):
        name, mean, interval, _, verdict, _, seeds = _format_effect(effects[0], study.measure)
        effect = f"{name}: {mean} {study.measure.unit} ({interval})"
        if others := [one.verdict not in (UNDECIDED, NOTHING) for one in effects[1:]]:
            verdict += f"; {sum(others)} of {len(others)} others decided"
    conclusion = page.read_text(encoding="utf-8").partition(CONCLUSION)[2].strip()
    return {
        "study": study,
        "effect": effect,
        "verdict": verdict,
        "cost": describe_cost(study),
        "seeds": seeds,
        "finding": " ".join(conclusion.partition("\n\n")[0].split()) or UNWRITTEN,
        "picture": PICTURE if (page.parent / PICTURE).is_file() else None,
    }


def explain_silence(study: Study) -> str:
    """Why a study has no verdict, and what gives one."""
    arms, seeds = study.select(SEARCH)[["arm", "seed"]].nunique()
    if arms > 1 == seeds and study.about["identity"]["grid"]:
        return "one seed: no verdict; seed=0,1,2 gives one"
    return "no verdict: no two arms were compared at two seeds"


def wrap(text: str, indent: str = "") -> str:
    """indent: of all lines but the first."""
    return textwrap.fill(
        text, _COLUMNS, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    return "\n".join("| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *others))


# -- the picture ----------------------------------------------------------------------------------


def draw_study(study: Study) -> Any:
    """Draw curves and dots of the best arms; None before a trial is complete."""
    trials = study.select(SEARCH)
    best = trials.groupby("arm")[WINS].max().dropna().nlargest(_MOST_CURVES)
    if best.empty:
        return None
    trials = trials[trials.arm.isin(best.index)]
    numbers = trials.groupby("arm").trial.first()
    names = {arm: arm if len(arm) <= _WIDTH else f"trial {numbers[arm]}" for arm in numbers.index}
    trials = trials.assign(arm=trials.arm.map(names))
    figure = new_figure(9, 5.2 + 0.4 * len(best))
    upper, lower = figure.subplots(2, 1, height_ratios=(4, 1.2 + 0.4 * len(best)))
    _draw_curves(upper, study, trials)
    _draw_dots(lower, trials)
    for axes in (upper, lower):
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:  # the start may have no line
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
    figure.supxlabel(_NOTE, fontsize=8.5)
    return figure


def _draw_curves(axes: Any, study: Study, trials: Frame) -> None:
    """A line for each arm."""
    points = _read_points(study, trials)
    for arm, marker in zip(trials.arm.unique(), _MARKERS, strict=False):
        values = points[points.arm == arm].groupby("games").value
        whole = values.size() == values.size().max()  # where a seed is missing, the mean would jump
        axes.plot(values.mean()[whole], marker=marker, ms=4, label=arm)
    title, y = "Mean over seeds", _Y
    if study.measure.over_time:
        title, y = study.measure.title.capitalize(), "share (%)"
    axes.set(title=title, xlabel="training games", ylabel=y)


def _draw_dots(axes: Any, trials: Frame) -> None:
    """A dot for each trial, a bar for each arm's mean, and a line for the start."""
    wins = 100 * trials.set_index("arm")[WINS].dropna()
    arms = wins.groupby(level="arm", sort=False)
    means, halves = arms.mean(), arms.agg(find_half)
    axes.plot(wins, wins.index, "o", color=BLUE, ms=5, alpha=0.6)
    axes.errorbar(means, means.index, xerr=halves, fmt="|", color=INK, ms=14, capsize=4)
    axes.set(title="The best checkpoint of each trial", xlabel=_Y)
    axes.invert_yaxis()
    if (start := find_start(trials)) is not None:
        level = 100 * float(start.mean())
        axes.axvline(level, color=GREY, lw=1.2, ls=":", label=f"start, {level:.1f} %")


def _read_points(study: Study, trials: Frame) -> Frame:
    """A row (`arm`, `games`, `value` in percent) for each validation of each trial."""
    points = trials[["arm", "trial", "curve"]].explode("curve", ignore_index=True)
    # A validation has the same place among the steps of a trial as among its numbers of games.
    points["place"] = points.groupby("trial").cumcount()
    points["games"], points["value"] = (points.curve.str[n].astype(float) for n in (0, 1))
    if study.measure.over_time and study.measure.of_games:
        games = study.games[study.games["round"] == SEARCH]
        games = games.assign(value=study.measure.of_games(games).astype(float))
        means = games.groupby(["trial", "step"]).value.mean().reset_index()
        means["place"] = means.groupby("trial").cumcount()
        points = points.drop(columns="value").merge(means, on=["trial", "place"])
    return points.assign(value=100 * points.value)


def find_start(trials: Frame) -> Any:
    """The wins (0..1) of the common start at each seed; None if arms begin with other models."""
    starts = trials[[bool(curve) and curve[0][0] == 0 for curve in trials.curve]]
    wins = starts.curve.map(lambda curve: curve[0][1]).groupby(starts.seed)
    return wins.first() if len(starts) and (wins.nunique() == 1).all() else None
