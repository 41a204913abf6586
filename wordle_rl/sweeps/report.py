"""A study as a page: its table, its CSV and the index of all studies.

What a person writes into a page stays: only what stands between the markers is made again.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.means import Mean, shown_mean
from wordle_rl.sweeps.plan import ARM
from wordle_rl.sweeps.results import Result, Study
from wordle_rl.sweeps.space import same_params, shown

BEGIN, END = "<!-- results: made by python -m wordle_rl.study -->", "<!-- end of results -->"
CONCLUSION = "## Conclusion"
UNWRITTEN = "*Not written yet.*"
MOST_CURVES = 10  # arms that can be told apart in one picture
_MOST_ROWS = 20
_PLAIN = re.compile(r"='([\w.,/-]+)'$")  # a value that Hydra was given in quotes it can do without
_FIGURES = ("run", "best_step", "games", "seconds", "games_per_second", "no_spread",
            "test_win_rate", "test_mean_guesses_losses_as_7", "cause")  # fmt: skip


def arms(results: Sequence[Result]) -> list[tuple[dict[str, Any], list[Result]]]:
    """The trials of each combination of parameters but the seed, in their order."""
    found: dict[str, tuple[dict[str, Any], list[Result]]] = {}
    for result in results:
        found.setdefault(json.dumps(result.arm), (result.arm, []))[1].append(result)
    return list(found.values())


Figure = Callable[[Result], float | None]


def _value(trial: Result) -> float | None:
    return trial.value


def _figure(name: str) -> Figure:
    return lambda trial: trial.figures.get(name)


def difference(trials: Sequence[Result], base: Sequence[Result], figure: Figure) -> Mean | None:
    """A figure's mean difference between trials of equal seeds; None where no seed has both."""
    known = {t.params.get("seed"): figure(t) for t in base if t.state == "complete"}
    pairs = [(figure(t), known.get(t.params.get("seed"))) for t in trials if t.state == "complete"]
    return Mean.of([one - other for one, other in pairs if one is not None and other is not None])


def results_table(results: Sequence[Result], default: Mapping[str, Any] | None = None) -> str:
    """A row for each arm: means over seeds with their 95 % intervals.

    default: the arm that the others are compared with, seed by seed.
    """
    base = [r for r in results if default is not None and same_params(r.arm, default)]
    head = ("arm", "seeds", "games", "validation wins %", "validation, to default", "test wins %",
            "test, to default", "mean guesses (test)", "groups without spread %", "games/s",
            "minutes")  # fmt: skip
    rows = []
    for arm, trials in arms(results):
        done = [t for t in trials if t.state == "complete"]
        wins = Mean.of([t.value for t in done])

        def mean(name: str, done: Sequence[Result] = done) -> Mean | None:
            return Mean.of([t.figures.get(name) for t in done])

        to_default = [
            "default"
            if trials[0] in base
            else shown_mean(difference(trials, base, figure), scale=100, sign="+")
            for figure in (_value, _figure("test_win_rate"))
        ]
        pruned = sum(t.state == "pruned" for t in trials)
        failed = sum(t.state == "failed" for t in trials)
        notes = [f"{n} {what}" for n, what in ((pruned, "pruned"), (failed, "failed")) if n]
        row = (
            shown(arm) or "-",
            ", ".join([str(len(done)), *notes]),
            shown_mean(mean("games"), digits=0).removesuffix(" ± 0"),
            shown_mean(wins, scale=100),
            to_default[0],
            shown_mean(mean("test_win_rate"), scale=100),
            to_default[1],
            shown_mean(mean("test_mean_guesses_losses_as_7"), digits=2),
            shown_mean(mean("no_spread"), scale=100),
            shown_mean(mean("games_per_second")),
            shown_mean(mean("seconds"), scale=1 / 60),
        )
        rows.append((wins.mean if wins else -1.0, row))
    if len(rows) > _MOST_ROWS:
        rows = sorted(rows, key=lambda entry: -entry[0])[:_MOST_ROWS]
    return _lines(head, [row for _, row in rows])


def seed_table(results: Sequence[Result]) -> str:
    """A row for each trial of a study that compares nothing but seeds."""
    head = ("seed", "state", "games", "validation wins %", "test wins %", "mean guesses (test)",
            "minutes")  # fmt: skip

    def cell(value: float | None, scale: float = 1.0, digits: int = 1) -> str:
        return "-" if value is None else f"{scale * value:.{digits}f}"

    rows = [
        (
            str(r.params.get("seed")),
            r.state,
            cell(r.figures.get("games"), digits=0),
            cell(r.value, 100),
            cell(r.figures.get("test_win_rate"), 100),
            cell(r.figures.get("test_mean_guesses_losses_as_7"), digits=2),
            cell(r.figures.get("seconds"), 1 / 60),
        )
        for r in results
    ]
    return _lines(head, rows)


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def csv_text(study: Study) -> str:
    """A line for each trial."""
    params = list(dict.fromkeys(name for r in study.results for name in r.params))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["trial", "phase", "state", *params, "val_win_rate", *_FIGURES])
    for r in study.results:
        values = [r.params.get(name) for name in params]
        phase = "confirmation" if r.confirms else "search"
        figures = [r.figures.get(name) for name in _FIGURES]
        if figures[0] is not None:  # the run, as seen from the project
            figures[0] = str(figures[0]).removeprefix(f"{ROOT}/")
        writer.writerow([r.number, phase, r.state, *values, r.value, *figures])
    return out.getvalue()


def page(study: Study, pictures: Sequence[tuple[str, str]], before: str | None) -> str:
    """The README of a study. pictures: title and file of each. before: the page as it is now."""
    command = "python " + shlex.join(_PLAIN.sub(r"=\1", word) for word in study.command)
    search = [r for r in study.results if not r.confirms]
    confirm = [r for r in study.results if r.confirms]
    counts = {s: sum(r.state == s for r in search) for s in ("complete", "pruned", "failed")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none yet"
    parts = [
        BEGIN,
        f"Trials: {told}. Intervals are 95 %, Student's t over seeds; - is not measured. "
        "Validation wins are those of the checkpoint that has the most, the start included; test "
        "wins are its greedy ones. To default: the mean difference, in points, from the default "
        "arm with equal seeds. A lost game counts as 7 guesses; minutes are those of training.",
        *_of_start(search),
        results_table(search, study.identity.get("default")),
    ]
    if len(arms(search)) == 1 and "seed" in search[0].params:
        parts += ["Each seed:", seed_table(search)]
    parts += _saved(search)
    if study.best:
        parts.append(f"Best on validation secrets: **{shown(study.best)}**.")
    if confirm:
        both = any(r.arm == {ARM: "default"} for r in confirm)
        who = "The winner and the default" if both else "The winner" if study.best else "All"
        parts += [f"{who} again, with fresh seeds:", results_table(confirm, {ARM: "default"})]
    if len(arms(search)) > MOST_CURVES:
        parts.append(f"Pictures show the best {MOST_CURVES} arms.")
    parts += [f"![{title}]({file})" for title, file in pictures] + [END]
    results = "\n\n".join(parts)
    if before is not None and BEGIN in before and END in before:
        head, tail = before.partition(BEGIN)[0], before.partition(END)[2]
        return head + results + tail
    return (
        f"# {study.name}\n\n{study.question}\n\n    {command}\n\n{results}\n\n"
        f"{CONCLUSION}\n\n{UNWRITTEN}\n"
    )


def _of_start(results: Sequence[Result]) -> list[str]:
    """What the trials began with, which differs with the draws of their seeds."""
    start: dict[Any, float] = {}
    for result in results:
        for games, wins in (result.figures.get("curve") or [])[:1]:
            if games == 0.0 and start.setdefault(result.params.get("seed"), wins) != wins:
                return []  # arms with starts of their own
    if not start:
        return []
    wins = shown_mean(Mean.of([*start.values()]), scale=100)
    return [f"The start wins {wins} % of the validation games (seeds draw them anew, too)."]


def _saved(results: Sequence[Result]) -> list[str]:
    """How much of the search was spared by pruning."""
    pruned = [r.figures.get("games") or 0.0 for r in results if r.state == "pruned"]
    whole = [r.figures.get("games") or 0.0 for r in results if r.state == "complete"]
    if not pruned or not whole:
        return []
    share = 1.0 - (sum(whole) + sum(pruned)) / (max(whole) * len(whole + pruned))
    return [f"Pruning saved {share:.0%} of the games that all trials in full would have played."]


def conclusion(page: str) -> str:
    """The first paragraph that a person wrote as the conclusion, in one line."""
    written = page.partition(CONCLUSION)[2].strip()
    return " ".join(written.partition("\n\n")[0].partition("\n#")[0].split())


def write_index(root: Path) -> None:
    """The list of studies in <root>/README.md: finding, figure, link."""
    rows = []
    for path in sorted(root.glob("*/README.md")):
        name, text = path.parent.name, path.read_text(encoding="utf-8")
        figure = f"![]({name}/wins.png)" if (path.parent / "wins.png").exists() else ""
        finding = conclusion(text).replace("|", "\\|") or UNWRITTEN
        rows.append(f"| [{name}]({name}/README.md) | {finding} | {figure} |")
    made = "\n".join(
        [BEGIN, "", "| study | finding | figure |", "| --- | --- | --- |", *rows, "", END]
    )
    path = root / "README.md"
    before = path.read_text(encoding="utf-8") if path.exists() else f"# Studies\n\n{BEGIN}{END}\n"
    text = before.partition(BEGIN)[0] + made + before.partition(END)[2]
    if text != before:
        write_bytes(path, text.encode())
