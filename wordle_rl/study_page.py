"""The page of a study: its arms with intervals over seeds, against the default, seed by seed.

It reads the study's storage. Where the study ran elsewhere, results.csv takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from wordle_rl.reports.curves import name_part
from wordle_rl.reports.drawing import MOST_LINES, Charts, Curves, Dots, Line
from wordle_rl.reports.page import Link, Part, render
from wordle_rl.reports.results import Estimate
from wordle_rl.reports.tables import NONE, Table, cut
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.untrusted import read_text
from wordle_rl.sweeps.comparisons import compare, compare_confirmed, read_measure
from wordle_rl.sweeps.index import read_conclusion
from wordle_rl.sweeps.means import Mean, format_mean
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.records import LINEAGE, TEST_GUESSES, TEST_WINS
from wordle_rl.sweeps.report import group_by_arm, mean_difference
from wordle_rl.sweeps.results import Result, Study
from wordle_rl.sweeps.space import format_params

_BEFORE, _AFTER = ("trial", "round", "state"), "val_win_rate"  # columns around the parameters
_MOST_ARMS = 20  # in a picture
_BAND = "Means over seeds with 95 % intervals (Student's t)."
_PICTURES = ("over_time.png", "curves.png", "wins.png", "compute.png", "importance.png",
             "parallel.png")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Arm:
    """The trials of one combination of parameters."""

    name: str
    trials: Sequence[Result]
    default: bool

    @property
    def complete(self) -> list[Result]:
        return [trial for trial in self.trials if trial.state == "complete"]

    def mean(self, figure: str | None = None) -> Mean | None:
        """figure: None for validation wins."""
        return Mean.of(
            [t.value if figure is None else t.figures.get(figure) for t in self.complete]
        )


def make_study_page(folder: Path, url: str | None = None) -> str:
    """The HTML of the page of a study. Raises ReportError or FolderError in one line.

    url: of its storage, None for the one in study.json.
    """
    study = read_study(folder, url)
    charts = Charts()
    search = _arms(study, confirms=False)
    confirmed = _arms(study, confirms=True)
    counts = {s: sum(r.state == s for r in study.results) for s in ("complete", "pruned", "failed")}
    trials = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    facts = [f"trials: {trials or 'none'}", f"python {' '.join(study.command)}"]
    parts = [
        _result(study, search, charts, folder),
        Part(key="effects", title="Effects", tables=_effects(study)),
        Part(key="confirmed", title="With fresh seeds",
             tables=[_table(confirmed, "The winner and the default with fresh seeds")]
             if confirmed else []),
        Part(key="curves", title="Curves", charts=_curves(search, charts)),
        _importance(study),
        Part(key="trials", title="Trials", tables=[_trials(study)], links=_links(study, folder)),
        Part(key="lineage", title="Lineage", lines=[*dict.fromkeys(
            str(r.figures[LINEAGE]) for r in study.results if r.figures.get(LINEAGE))]),
    ]  # fmt: skip
    return render(f"Study {study.name}", facts, [], parts, charts.styles)


def _arms(study: Study, *, confirms: bool) -> list[_Arm]:
    """All arms, the best first."""
    default = {"arm": "default"} if confirms else study.identity.get("default") or {}
    wanted = {name: str(value) for name, value in default.items()}
    arms = [
        _Arm(
            name=format_params(arm) or "all seeds", trials=trials,
            default=bool(wanted) and {n: str(v) for n, v in arm.items()} == wanted,
        )
        for arm, trials in group_by_arm([r for r in study.results if r.confirms == confirms])
    ]  # fmt: skip
    return sorted(arms, key=lambda arm: -(found.mean if (found := arm.mean()) else -1.0))


def _result(study: Study, arms: Sequence[_Arm], charts: Charts, folder: Path) -> Part:
    page = folder / "README.md"
    written = read_conclusion(read_text(page)) if page.is_file() else ""
    lines = [study.question, *([written.replace("`", "")] if written else [])]
    if study.best:
        lines.append(f"Best on validation secrets: {format_params(study.best)}.")
    files = [name for name in ("README.md", "results.csv", *_PICTURES) if (folder / name).is_file()]
    return Part(
        key="result", title="Result", lines=lines, strong=True,
        charts=[
            charts.dots(Dots(title=title, note=_BAND, unit="games won, %", percent=True,
                             rows=_rows(arms, figure)))
            for title, figure in (("Validation games won", None), ("Test games won", TEST_WINS))
        ],
        tables=[_table(arms, "Arms, the best on validation secrets first")] if arms else [],
        links=[Link(href=f"./{name}", text=f"{name} of this study") for name in files],
    )  # fmt: skip


def _rows(arms: Sequence[_Arm], figure: str | None) -> list[tuple[str, Estimate]]:
    return [
        (arm.name + " (default)" * arm.default, _estimate(mean))
        for arm in arms[:_MOST_ARMS]
        if (mean := arm.mean(figure)) is not None
    ]


def _estimate(mean: Mean, most: float = 1.0) -> Estimate:
    if mean.half is None:
        return Estimate(value=mean.mean)
    low, high = max(mean.mean - mean.half, 0.0), min(mean.mean + mean.half, most)
    return Estimate(value=mean.mean, low=low, high=high)


def _table(arms: Sequence[_Arm], caption: str) -> Table:
    base = next((arm.trials for arm in arms if arm.default), [])
    rows = []
    for arm in arms:
        to_default = [
            "default" if arm.default
            else format_mean(mean_difference(arm.trials, base, figure), scale=100, sign="+")
            for figure in (lambda t: t.value, lambda t: t.figures.get(TEST_WINS))
        ]  # fmt: skip
        rows.append([
            arm.name, str(len(arm.complete)),
            format_mean(arm.mean("games"), digits=0).removesuffix(" ± 0"),
            format_mean(arm.mean(), scale=100), to_default[0],
            format_mean(arm.mean(TEST_WINS), scale=100), to_default[1],
            format_mean(arm.mean(TEST_GUESSES), digits=2),
            format_mean(arm.mean("seconds"), scale=1 / 60),
        ])  # fmt: skip
    return Table(
        caption=caption,
        columns=["arm", "seeds", "games", "validation wins, %", "to default, points",
                 "test wins, %", "to default, points", "mean guesses (test)", "minutes"],
        rows=rows,
        note=f"{_BAND} To default: the mean difference at equal seeds.",
    )  # fmt: skip


def _effects(study: Study) -> list[Table]:
    """The comparisons with their verdicts, for the search and for fresh seeds."""
    measure = read_measure(study)
    return [
        Table(
            caption=f"{measure.title[:1].upper()}{measure.title[1:]}: differences {where}",
            columns=["comparison", f"difference, {measure.unit}", "interval", "verdict",
                     "resolution", "seeds", "secrets"],
            rows=[[e.name, f"{e.difference:+.{measure.digits}f}",
                   f"{e.low:+.{measure.digits}f} to {e.high:+.{measure.digits}f}", e.verdict,
                   f"{e.resolution:.{measure.digits}f}", str(e.seeds), str(e.secrets)]
                  for e in effects],
            note="At equal seeds and secrets, with Holm's correction. Resolution: the difference "
                 "that would be found with a chance of 80 %.",
        )
        for effects, where in (
            (compare(study), "between arms"), (compare_confirmed(study), "with fresh seeds")
        ) if effects
    ]  # fmt: skip


def _curves(arms: Sequence[_Arm], charts: Charts) -> list:
    """Validation wins over games, at most five arms in a picture and the ten best in all."""
    shown = [line for arm in arms[: 2 * MOST_LINES] if (line := _curve(arm)) is not None]
    parts = [shown[i : i + MOST_LINES] for i in range(0, len(shown), MOST_LINES)]
    return [
        charts.curves(
            Curves(
                title=name_part("Validation games won", number, len(parts)), note=_BAND,
                unit="games won, %", percent=True, axis="training games",
                lines=[Line(label=name, steps=[g for g, _ in points],
                            values=[e.value for _, e in points], colour=i, dots=True,
                            low=[e.value if e.low is None else e.low for _, e in points],
                            high=[e.value if e.high is None else e.high for _, e in points])
                       for i, (name, points) in enumerate(part)],
            )
        )
        for number, part in enumerate(parts, 1)
    ]  # fmt: skip


def _curve(arm: _Arm) -> tuple[str, list[tuple[float, Estimate]]] | None:
    at: dict[float, list[float]] = {}
    for trial in arm.trials:
        for games, wins in trial.figures.get("curve") or []:
            at.setdefault(games, []).append(wins)
    if not at:
        return None
    full = max(map(len, at.values()))  # a mean over fewer seeds than elsewhere would jump
    means = {games: Mean.of(at[games]) for games in sorted(at) if len(at[games]) == full}
    return arm.name, [(games, _estimate(mean)) for games, mean in means.items() if mean]


def _importance(study: Study) -> Part:
    rows = [
        [name, f"{100 * share.value:.0f}", f"{100 * share.low:.0f} to {100 * share.high:.0f}"]
        for name, share in study.importance.items()
    ]
    table = Table(caption="What sets the better trials apart", rows=rows,
                  columns=["parameter", "share, %", "90 % interval"],
                  note="PED-ANOVA. Intervals come from trials drawn again with replacement.",
                  )  # fmt: skip
    return Part(key="importance", title="Importance", tables=[table] if rows else [])


def _trials(study: Study) -> Table:
    def cell(value: float | None, scale: float = 1.0, digits: int = 1) -> str:
        return NONE if value is None else f"{scale * value:.{digits}f}"

    return Table(
        caption="All trials",
        columns=["trial", "parameters", "state", "validation wins, %", "test wins, %",
                 "mean guesses (test)", "why it failed"],
        rows=[[f"{r.number}{' (fresh seed)' * r.confirms}", cut(format_params(r.params)), r.state,
               cell(r.value, 100), cell(r.figures.get(TEST_WINS), 100),
               cell(r.figures.get(TEST_GUESSES), digits=2), cut(r.figures.get("cause") or "")]
              for r in study.results],
    )  # fmt: skip


def _links(study: Study, folder: Path) -> list[Link]:
    """The reports of the trials that are on this machine."""
    found = []
    for trial in study.results:
        page = ROOT / str(trial.figures.get("run") or "-") / "report.html"
        if page.is_file():
            path = os.path.relpath(page, folder.resolve())
            text = f"trial {trial.number}, {format_params(trial.params)}"
            found.append(Link(href=f"./{quote(path)}", text=f"report of {text}"))
    return found
