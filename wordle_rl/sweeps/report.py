"""The page of a study.

Only the text between the two markers is written again. What a person writes outside them stays.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wordle_rl.sweeps.effect_table import format_effects, wrap
from wordle_rl.sweeps.effects import Effect
from wordle_rl.sweeps.means import Mean, format_mean
from wordle_rl.sweeps.plan import ARM
from wordle_rl.sweeps.records import LINEAGE, TEST_GUESSES, TEST_WINS
from wordle_rl.sweeps.results import Result, Study
from wordle_rl.sweeps.space import format_params, same_params

BEGIN, END = "<!-- results: made by python -m wordle_rl.study -->", "<!-- end of results -->"
CONCLUSION = "## Conclusion"
UNWRITTEN = "*Not written yet.*"
MOST_CURVES = 10  # arms whose colours can be told apart in one picture
_MOST_ROWS = 20
_NEEDLESS_QUOTES = re.compile(r"='([\w.,/-]+)'$")  # around a value that Hydra reads without
_EXPLANATION = """\
- Validation wins are those of the run's best checkpoint. The starting model counts as a checkpoint.
- Test wins come from greedy games of the same checkpoint.
- "To default" is the mean difference from the default arm at equal seeds, in points.
- Intervals are 95 %, Student's t over seeds. A dash means that nothing was measured.
- A lost game counts as one guess more than the rules allow, usually 7.
- Minutes are time spent on training."""


def group_by_arm(results: Sequence[Result]) -> list[tuple[dict[str, Any], list[Result]]]:
    """The trials of each combination of parameters, seed aside, in their order."""
    found: dict[str, tuple[dict[str, Any], list[Result]]] = {}
    for result in results:
        found.setdefault(json.dumps(result.arm), (result.arm, []))[1].append(result)
    return list(found.values())


Figure = Callable[[Result], float | None]


def _read_value(trial: Result) -> float | None:
    return trial.value


def _read_figure(name: str) -> Figure:
    return lambda trial: trial.figures.get(name)


def mean_difference(
    trials: Sequence[Result], base: Sequence[Result], figure: Figure
) -> Mean | None:
    """A figure's mean difference between trials of equal seeds; None if no seed has both."""
    known = {t.params.get("seed"): figure(t) for t in base if t.state == "complete"}
    pairs = [(figure(t), known.get(t.params.get("seed"))) for t in trials if t.state == "complete"]
    return Mean.of([one - other for one, other in pairs if one is not None and other is not None])


def format_results(results: Sequence[Result], default: Mapping[str, Any] | None = None) -> str:
    """A row for each arm: means over seeds with their 95 % intervals.

    default: the arm with which the others are compared, seed by seed.
    """
    base = [r for r in results if default is not None and same_params(r.arm, default)]
    head = ("arm", "seeds", "games", "validation wins %", "validation, to default", "test wins %",
            "test, to default", "mean guesses (test)", "groups without spread %", "games/s",
            "minutes")  # fmt: skip
    rows = []
    for arm, trials in group_by_arm(results):
        done = [t for t in trials if t.state == "complete"]
        wins = Mean.of([t.value for t in done])

        def mean(name: str, done: Sequence[Result] = done) -> Mean | None:
            return Mean.of([t.figures.get(name) for t in done])

        to_default = [
            "default"
            if trials[0] in base
            else format_mean(mean_difference(trials, base, figure), scale=100, sign="+")
            for figure in (_read_value, _read_figure(TEST_WINS))
        ]
        pruned = sum(t.state == "pruned" for t in trials)
        failed = sum(t.state == "failed" for t in trials)
        notes = [f"{n} {what}" for n, what in ((pruned, "pruned"), (failed, "failed")) if n]
        row = (
            format_params(arm) or "-",
            ", ".join([str(len(done)), *notes]),
            format_mean(mean("games"), digits=0).removesuffix(" ± 0"),
            format_mean(wins, scale=100),
            to_default[0],
            format_mean(mean(TEST_WINS), scale=100),
            to_default[1],
            format_mean(mean(TEST_GUESSES), digits=2),
            format_mean(mean("no_spread"), scale=100),
            format_mean(mean("games_per_second")),
            format_mean(mean("seconds"), scale=1 / 60),
        )
        rows.append((wins.mean if wins else -1.0, row))
    if len(rows) > _MOST_ROWS:
        rows = sorted(rows, key=lambda entry: -entry[0])[:_MOST_ROWS]
    return _format_table(head, [row for _, row in rows])


def format_seeds(results: Sequence[Result]) -> str:
    """A row for each trial of a study that varies seeds alone."""
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
            cell(r.figures.get(TEST_WINS), 100),
            cell(r.figures.get(TEST_GUESSES), digits=2),
            cell(r.figures.get("seconds"), 1 / 60),
        )
        for r in results
    ]
    return _format_table(head, rows)


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_page(
    study: Study,
    effects: Sequence[Effect],
    pictures: Sequence[tuple[str, str]],
    before: str | None,
    play: Sequence[str] = (),
) -> str:
    """Format the README of a study.

    effects: of its comparisons. pictures: title and file name of each picture. before: the present
    page, None if there is none. play: paragraphs about how the arms play.
    """
    results = "\n\n".join(
        [
            BEGIN,
            *format_effects(study, effects),
            *play,
            *_format_search(study),
            *_format_confirmation(study),
        ]
    )
    if len(group_by_arm([r for r in study.results if not r.confirms])) > MOST_CURVES:
        results += f"\n\nThe pictures show the {MOST_CURVES} best arms."
    results = "\n\n".join([results, *(f"![{title}]({file})" for title, file in pictures), END])
    if before is not None and BEGIN in before and END in before:
        head, tail = before.partition(BEGIN)[0], before.partition(END)[2]
        return head + results + tail
    first, *words = study.command
    begin = f"python {shlex.quote(first)}" if first.endswith(".py") else first
    typed = shlex.join(_NEEDLESS_QUOTES.sub(r"=\1", word) for word in words)
    return (
        f"# {study.name}\n\n{wrap(study.question)}\n\n    {begin} {typed}\n\n{results}\n\n"
        f"{CONCLUSION}\n\n{UNWRITTEN}\n"
    )


def _format_search(study: Study) -> list[str]:
    """The paragraphs about the search: how to read the table, the table, and the best arm."""
    search = [r for r in study.results if not r.confirms]
    counts = {s: sum(r.state == s for r in search) for s in ("complete", "pruned", "failed")}
    states = ", ".join(f"{count} {s}" for s, count in counts.items() if count) or "none yet"
    parts = [
        f"Trials: {states}.",
        _EXPLANATION,
        *_describe_start(search),
        format_results(search, study.identity.get("default")),
    ]
    if len(group_by_arm(search)) == 1 and "seed" in search[0].params:
        parts += ["Each seed:", format_seeds(search)]
    parts += _describe_lineages(search)
    parts += _describe_pruning(search)
    if study.best:
        parts.append(wrap(f"Best on validation secrets: **{format_params(study.best)}**."))
    return parts


def _format_confirmation(study: Study) -> list[str]:
    """The table of the runs with fresh seeds, if there are any."""
    confirm = [r for r in study.results if r.confirms]
    if not confirm:
        return []
    both = any(r.arm == {ARM: "default"} for r in confirm)
    who = "The winner and the default" if both else "The winner" if study.best else "The same"
    table = format_results(confirm, {ARM: "default"})
    return [f"{who} with fresh seeds:", table, *_describe_lineages(confirm)]


def _describe_lineages(results: Sequence[Result]) -> list[str]:
    """Each lineage of the models behind the test wins, once."""
    found = dict.fromkeys(r.figures[LINEAGE] for r in results if LINEAGE in r.figures)
    lines = [wrap(f"- {line[:1].upper()}{line[1:]}", "  ") for line in found]
    return ["\n".join(lines)] if lines else []


def _describe_start(results: Sequence[Result]) -> list[str]:
    """The wins of the model with which all trials start."""
    start: dict[Any, float] = {}
    for result in results:
        for games, wins in (result.figures.get("curve") or [])[:1]:
            if games == 0.0 and start.setdefault(result.params.get("seed"), wins) != wins:
                return []  # each arm has its own start
    if not start:
        return []
    mean = Mean.of([*start.values()])
    # Greedy games of one start are the same with every seed.
    drawn = " Each seed draws its own." if mean and mean.half else ""
    wins = format_mean(mean, scale=100).removesuffix(" ± 0.0")
    return [f"The starting model wins {wins} % of the validation games.{drawn}"]


def _describe_pruning(results: Sequence[Result]) -> list[str]:
    """How many games of the search pruning saved."""
    pruned = [r.figures.get("games") or 0.0 for r in results if r.state == "pruned"]
    whole = [r.figures.get("games") or 0.0 for r in results if r.state == "complete"]
    if not pruned or not whole:
        return []
    share = 1.0 - (sum(whole) + sum(pruned)) / (max(whole) * len(whole + pruned))
    return [f"Pruning saved {100 * share:.0f} % of the games of all trials in full length."]
