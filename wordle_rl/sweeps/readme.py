"""Writes README.md of a study: its verdicts, arms and picture, and the index beside its folder.

Only the text between the two markers is written again. What a person writes outside them stays.
"""

import itertools
import json
import math
import shlex
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wordle_rl.runs.figures import BLUE, GREY, INK, new_figure, save_figure
from wordle_rl.runs.files import json_bytes, render_template, write_bytes, write_json
from wordle_rl.sweeps.results import CONFIRMATION, RECORD, SEARCH, WINS
from wordle_rl.sweeps.verdicts import (
    LEAST_P,
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
_WIDE = 40  # characters of a name in a line of the picture
_Y = "validation games won (%)"
_BESIDE: Any = {"loc": "upper left", "bbox_to_anchor": (1, 1), "frameon": False, "fontsize": 9}
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
    effects = [asdict(effect) for effect in judge(study)]
    # Another machine may add in another order, which must not change a shipped file.
    rounded = [
        json.loads(json_bytes(found), parse_float=lambda text: round(float(text), 9))
        for found in (effects, study.about.get("effects"))
    ]
    if rounded[0] != rounded[1]:
        write_json(folder / RECORD, {**study.about, "effects": effects})
    figure = draw_study(study)
    if figure is not None:
        save_figure(figure, folder / PICTURE)
    path = folder / PAGE
    before = path.read_text(encoding="utf-8") if path.exists() else _begin_page(study)
    write_bytes(path, _put_between(before, _render("study.md.j2", **describe(study))).encode())
    index = folder.resolve().parent / PAGE
    if index.is_file() and BEGIN in index.read_text(encoding="utf-8"):
        write_index(index.parent)
    return path


def _begin_page(study: Study) -> str:
    first, *words = study.about["command"]
    question = wrap(study.about["question"])
    begin = f"python {shlex.quote(first)}" if first.endswith(".py") else first
    return (
        f"# {study.name}\n\n{question}\n\n    {begin} {shlex.join(words)}\n\n{BEGIN}\n"
        f"{END}\n\n{CONCLUSION}\n\n{UNWRITTEN}\n"
    )


def _put_between(page: str, text: str) -> str:
    if BEGIN not in page or END not in page:
        raise ValueError(f"{PAGE} must have the lines {BEGIN} and {END}, between which to write")
    return f"{page.partition(BEGIN)[0]}{BEGIN}\n\n{text.strip()}\n\n{END}{page.partition(END)[2]}"


def describe(study: Study) -> dict[str, Any]:
    """What the template of a page shows."""
    search, confirmed = study.select(SEARCH), study.select(CONFIRMATION)
    states = study.trials[study.trials["round"] == SEARCH].state.value_counts()
    effects, start = judge(study), find_start(search)
    metrics = study.about["analysis"].get("metrics") or []
    return {
        "study": study,
        "effects": effects,
        "silence": explain_silence(study),
        "secrets": max((effect.secrets for effect in effects), default=0),
        "cost": describe_cost(study),
        "states": [f"{states[s]} {s}" for s in ("complete", "pruned", "failed") if s in states],
        # Greedy games of one start are the same with every seed.
        "start": None if start is None else format_mean(start, 100, 1).removesuffix(" ± 0.0"),
        "arms": list_arms(search, study.default, metrics),
        "confirmed": list_arms(confirmed, "default", metrics) if len(confirmed) else [],
        "lineages": [[*part.lineage[part.lineage != ""].unique()] for part in (search, confirmed)],
        "most": _MOST_CURVES if search.arm.nunique() > _MOST_CURVES else None,
        "picture": PICTURE if search[WINS].notna().any() else None,
    }


def list_effects(effects: Sequence[Effect], measure: Measure) -> list[list[str]]:
    """A row for each comparison, titles first."""
    digits, difference = measure.digits, f"difference, {measure.unit}"
    rows = [["comparison", difference, "interval", "p", "verdict", "resolution", "seeds"]]
    for one in effects:
        interval, p, verdict, resolution = "-", "-", one.verdict, "-"
        if verdict != NOTHING:
            interval = f"{one.low:+.{digits}f} to {one.high:+.{digits}f}"
            p = f"{one.p:.3f}" if one.p >= LEAST_P else f"< {LEAST_P}"
            resolution = f"{one.resolution:.{digits}f}"
            verdict = verdict if verdict == UNDECIDED else f"**{verdict}**"
        mean = f"{one.difference:+.{digits}f}"
        rows.append([one.name, mean, interval, p, verdict, resolution, str(one.seeds)])
    return rows


def list_arms(trials: Frame, default: str | None, metrics: Sequence[str] = ()) -> list[list[str]]:
    """A row for each arm, titles first: means over seeds with their 95 % intervals.

    default: the arm with which the others are compared, seed by seed. Of many arms, the best.
    metrics: further columns, of the last quarter of the steps.
    """
    base = trials[(trials.state == "complete") & (trials.arm == default)].set_index("seed")
    rows = []
    for arm, own in trials.groupby("arm", sort=False):
        ended = own[own.state == "complete"].set_index("seed")
        states = own.state.value_counts()
        counts = [f"{states[s]} {s}" for s in ("pruned", "failed") if s in states]
        row = [arm, ", ".join([str(len(ended)), *counts])]
        for figure, factor, digits, relative in _FIGURES.values():
            values = ended[figure] - base[figure] if relative and len(base) else ended[figure]
            cell = format_mean(values, factor, digits, sign="+" if relative else "")
            if relative and (not len(base) or arm == default):
                cell = "default" if len(base) else "-"
            row.append(cell.removesuffix(" ± 0") if figure == "games" else cell)
        for name in metrics:
            row.append(format_mean([found.get(name) for found in ended.metrics], 1, 3))
        rows.append((-ended[WINS].mean(), row))
    if len(rows) > _MOST_ROWS:
        rows = sorted(rows, key=lambda entry: (math.isnan(entry[0]), entry[0]))[:_MOST_ROWS]
    table = [["arm", "seeds", *_FIGURES, *metrics], *(row for _, row in rows)]
    # Columns without a number are left out.
    some = [any({*cells} - {"-", "default"}) for _, *cells in zip(*table, strict=True)]
    return [list(itertools.compress(row, some)) for row in table]


def format_mean(values: Iterable[float | None], scale: float, digits: int, sign: str = "") -> str:
    """A mean over seeds with its 95 % interval (Student's t), - without values."""
    given = [scale * value for value in values if value is not None and not math.isnan(value)]
    if not given:
        return "-"
    mean = f"{statistics.fmean(given):{sign}.{digits}f}"
    return f"{mean} ± {find_half(given):.{digits}f}" if len(given) > 1 else mean


def find_half(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean; 0 with one value."""
    from scipy.stats import t  # half a second, which no worker needs

    if (count := len(values)) < 2:
        return 0.0
    return float(t.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)


def describe_cost(study: Study) -> str:
    ended = study.trials[study.trials.state.isin(["complete", "pruned"])]
    return f"{len(ended)} trials, {ended.seconds.sum() / 60:.0f} minutes of training"


def write_index(root: Path) -> None:
    """Write what each study beside the index asked, found and cost into <root>/README.md."""
    path, entries = root / PAGE, []
    for page in sorted(record.parent / PAGE for record in root.glob(f"*/{RECORD}")):
        if page.is_file():
            study = read_study(page.parent)
            effects = judge(study)
            effect, verdict = _sum_up(effects, study)
            conclusion = page.read_text(encoding="utf-8").partition(CONCLUSION)[2].strip()
            entries.append(
                {
                    "study": study,
                    "effect": effect,
                    "verdict": verdict,
                    "cost": describe_cost(study),
                    "seeds": effects[0].seeds if effects else study.select(SEARCH).seed.nunique(),
                    "finding": " ".join(conclusion.partition("\n\n")[0].split()) or UNWRITTEN,
                    "picture": PICTURE if (page.parent / PICTURE).is_file() else None,
                }
            )
    before = path.read_text(encoding="utf-8")
    write_bytes(path, _put_between(before, _render("index.md.j2", entries=entries)).encode())


def _sum_up(effects: Sequence[Effect], study: Study) -> tuple[str, str]:
    """The first effect, and its verdict with how many of the others are decided."""
    if not effects:
        return "-", explain_silence(study)
    first, *rest = effects
    _, (name, difference, interval, *_) = list_effects([first], study.measure)
    decided = sum(effect.verdict not in (UNDECIDED, NOTHING) for effect in rest)
    others = f"; {decided} of {len(rest)} others decided" if rest else ""
    return f"{name}: {difference} {study.measure.unit} ({interval})", first.verdict + others


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


def _render(template: str, **found: Any) -> str:
    filters: Any = {"wrap": wrap, "table": _table, "effect_rows": list_effects}
    return render_template(Path(__file__).with_name(template), **found, **filters)


# -- the picture: curves over training games, and a dot for each trial -----------------------------


def draw_study(study: Study) -> Any:
    """Draw curves and dots of the best arms; None before a trial is complete."""
    trials = study.select(SEARCH)
    best = trials.groupby("arm", sort=False)[WINS].max().dropna()
    if best.empty:
        return None
    if len(best) > _MOST_CURVES:
        best = best.sort_values(ascending=False, kind="stable")[:_MOST_CURVES]
    trials, start = trials[trials.arm.isin(best.index)], find_start(trials)
    seeds = trials.groupby("arm").trial.agg(["size", "first"]).loc[best.index]
    # An arm with a long name and one trial has the number of that for a name.
    long = (best.index.str.len() > _WIDE) & (seeds["size"] == 1)
    names = {a: f"trial {seeds['first'][a]}" if long[a] else a for a in best.index}
    figure = new_figure(9, 5.2 + 0.4 * len(names))
    upper, lower = figure.subplots(2, 1, height_ratios=(4, 1.2 + 0.4 * len(names)))
    _draw_curves(upper, study, trials, names)
    _draw_dots(lower, trials, names)
    if start is not None:
        level = 100 * float(start.mean())
        lower.axvline(level, color=GREY, lw=1.2, ls=":", label=f"start, {level:.1f} %")
        lower.legend(**_BESIDE)
    note = _explain_bars(seeds["size"].min(), seeds["size"].max())
    if long.any():
        note += " Trials have their numbers in study.json."
    figure.supxlabel(f"Dot: a trial. {note}", fontsize=8.5)
    return figure


def _explain_bars(least: int, most: int) -> str:
    """What lines and bars of the picture are. least, most: trials of an arm."""
    if most == 1:
        return "One seed for each arm, so there is no interval."
    many = most if least == most else f"{least} to {most}"
    return f"Line: the mean over seeds. Bar: its 95 % interval (Student's t), n = {many}."


def find_start(trials: Frame) -> Any:
    """The wins (0..1) of the common start at each seed; None if arms begin with other models."""
    begun = trials[[bool(curve) and curve[0][0] == 0 for curve in trials.curve]]
    wins = begun.curve.map(lambda curve: curve[0][1]).groupby(begun.seed)
    return wins.first() if len(begun) and (wins.nunique() == 1).all() else None


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


def _draw_curves(axes: Any, study: Study, trials: Frame, names: dict[str, str]) -> None:
    """A line for each arm."""
    points = _read_points(study, trials).groupby(["arm", "games"]).value
    for number, (arm, name) in enumerate(names.items()):
        means, seeds = points.mean()[arm], points.size()[arm]
        means = means[seeds == seeds.max()]  # where a seed is missing, the mean would jump
        axes.plot(means, marker="os^Dv<>pP*"[number], ms=4, label=textwrap.fill(name, _WIDE))
    title, y = "Validation games won over training games", _Y
    if study.measure.over_time:
        title, y = study.measure.title.capitalize(), "share (%)"
    axes.set(title=title, xlabel="training games", ylabel=y)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25)
    axes.legend(**_BESIDE)


def _draw_dots(axes: Any, trials: Frame, names: dict[str, str]) -> None:
    """A dot for each trial, and a bar for each arm's mean."""
    for place, arm in enumerate(names):
        own = 100 * trials[trials.arm == arm][WINS].dropna()
        axes.plot(own, [place] * len(own), "o", color=BLUE, ms=5, alpha=0.6)
        half = find_half(own)
        axes.errorbar([own.mean()], [place], xerr=[half], fmt="|", color=INK, ms=14, capsize=4)
    axes.set(title="Validation games won by the best checkpoint of each trial", xlabel=_Y)
    axes.grid(alpha=0.25)
    axes.set_yticks(range(len(names)), [textwrap.fill(name, _WIDE) for name in names.values()])
    axes.invert_yaxis()
