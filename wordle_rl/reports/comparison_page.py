"""The page of several runs: their results side by side, and each against the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wordle_rl.reports.curves import compare_curves
from wordle_rl.reports.drawing import MOST_LINES, Charts
from wordle_rl.reports.page import Part, render
from wordle_rl.reports.pairs import difference
from wordle_rl.reports.players import guess_standings, histogram, skill_by_turn, standings
from wordle_rl.reports.results import Result
from wordle_rl.reports.run import Run
from wordle_rl.reports.run_page import (
    WHAT,
    describe_difference,
    facts_of,
    solvers_of,
    titled_solvers,
)
from wordle_rl.reports.shown_games import boards_beside, game_data
from wordle_rl.reports.solvers import OPTIMUM, OPTIMUM_TITLE
from wordle_rl.reports.tables import (
    NONE,
    Table,
    cut,
    difference_table,
    duration,
    measures_table,
    percent,
    players_table,
    settings_between,
)
from wordle_rl.runs.labels import tell_apart

_FEW = MOST_LINES  # runs in a picture of bars, and in the filter
_LONGEST = 40  # characters of what sets runs of the same name apart


def comparison_page(runs: Sequence[Run]) -> str:
    """The HTML of the page of two runs or more."""
    runs = _with_distinct_names(runs)
    charts, ends, secrets = Charts(), *_ends(runs)
    what = WHAT.get(secrets, "secrets")
    few = ends[:_FEW]
    lines = [] if len(ends) <= _FEW else [f"Pictures of bars show the first {_FEW} runs."]
    parts = [
        _result(runs, ends, what, charts),
        Part(key="curves", title="Curves",
             charts=[charts.curves(one) for one in compare_curves(runs)]),
        Part(
            key="play", title="How they play", lines=lines,
            charts=[charts.bars(histogram(few, what)),
                    *map(charts.curves, skill_by_turn(few, what))],
            tables=[measures_table(ends, f"What the guesses were like, on {what}")],
        ),
        Part(key="boards", title="The same secrets, played by the first two",
             pairs=boards_beside(ends[0], ends[1]) if len(ends) > 1 else []),
        Part(key="games", title=f"All games on {what}", games=game_data(few)),
        Part(key="settings", title="Settings", tables=[settings_between(runs)]),
        Part(key="cost", title="Time and memory", tables=[_cost(runs)]),
    ]  # fmt: skip
    missing = [f"{run.name}: {line}" for run in runs for line in run.missing]
    facts = [f"{run.name}: {line}" for run in runs for line in facts_of(run)]
    title = f"{len(runs)} runs: {' and '.join(run.name for run in runs[:3])}"
    return render(title + (" and others" if len(runs) > 3 else ""), facts, missing, parts,
                  charts.styles)  # fmt: skip


def _with_distinct_names(runs: Sequence[Run]) -> list[Run]:
    """Runs of the same name also get what sets them apart, or else their folder or a number."""
    named = list(runs)
    for name, many in Counter(run.name for run in runs).items():
        places = [place for place, run in enumerate(runs) if run.name == name]
        if many > 1:
            for place, longer in zip(places, _longer_names([runs[p] for p in places]), strict=True):
                named[place] = replace(runs[place], name=longer)
    names = [run.name for run in named]
    return [
        replace(run, name=f"{run.name} ({number})") if names.count(run.name) > 1 else run
        for number, run in enumerate(named, 1)
    ]


def _longer_names(runs: Sequence[Run]) -> list[str]:
    """Names of runs that were given the same one."""
    texts = tell_apart([run.manifest for run in runs])
    if len(set(texts)) == len(runs) and max(map(len, texts)) <= _LONGEST:
        return [f"{run.name} {text}".rstrip() for run, text in zip(runs, texts, strict=True)]
    return [run.folder.resolve().name for run in runs]


def _ends(runs: Sequence[Run]) -> tuple[list[Result], str]:
    """The result of each run at its end, on test secrets if all runs have such a report."""
    kinds = {run.secrets for run in runs if run.end}
    ends = [replace(run.end, label=run.name) for run in runs if run.end]
    return ends, kinds.pop() if len(kinds) == 1 else "mixed"


def _result(runs: Sequence[Run], ends: Sequence[Result], what: str, charts: Charts) -> Part:
    if not ends:
        return Part(key="result", title="Result", lines=["None of these runs has a result yet."])
    base = ends[0]
    found = [(end.label, difference(base, end)) for end in ends[1:]]
    lines = [f"{base.label} wins {percent(base.wins)} % of {what}."]
    for end, (label, one) in zip(ends[1:], found, strict=True):
        lines.append(f"{label} wins {percent(end.wins)} %.")
        if one is not None:
            lines[-1] += f" {describe_difference(one, 'a difference')}"
    if what == "secrets":
        lines.append("Some of these runs played test secrets and others validation secrets.")
    solvers = next((known for run in runs if (known := solvers_of(run))), {})
    teachers = {name for run in runs for name in run.teachers}
    everyone = [*ends, *titled_solvers(solvers, teachers)]
    optimum = [(OPTIMUM_TITLE, OPTIMUM.value)] if solvers else []
    return Part(
        key="result", title="Result", lines=lines,
        charts=[charts.dots(standings(everyone, what, len(ends))),
                charts.dots(guess_standings(everyone, what, len(ends), optimum))],
        tables=[
            players_table(everyone, what, optimum=bool(solvers)),
            difference_table(base.label, found, f"Each run against {base.label}") if found
            else None,
        ],
    )  # fmt: skip


def _cost(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        games, memory = run.series("total/games")[1], run.series("memory/resident_gb")[1]
        seconds = run.series("time/step")[1]
        rows.append(
            [
                run.name,
                str(run.metrics[-1]["step"]) if run.metrics else NONE,
                f"{games[-1]:,.0f}" if games else NONE,
                NONE if run.seconds is None else duration(run.seconds),
                duration(sum(seconds)) if seconds else NONE,
                f"{max(memory):.2f}" if memory else NONE,
                cut(run.lineage or NONE),
            ]
        )
    return Table(
        caption="What the runs took",
        columns=["run", "steps", "training games", "time in all", "time of the steps",
                 "memory, GB", "lineage"],
        rows=rows,
    )  # fmt: skip
