"""The page of one run: what training changed, and everything that its folder says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wordle_rl.reports.curves import (
    Levels,
    guesses_of_run,
    memory_of,
    metrics_of,
    reward_of,
    time_of,
    wins_of,
)
from wordle_rl.reports.drawing import Charts
from wordle_rl.reports.page import Part, render
from wordle_rl.reports.pairs import Difference, difference
from wordle_rl.reports.players import guess_standings, histogram, skill_by_turn, standings
from wordle_rl.reports.results import Result, number
from wordle_rl.reports.run import Run
from wordle_rl.reports.shown_games import boards_beside, game_data
from wordle_rl.reports.solvers import (
    OPTIMUM,
    OPTIMUM_TITLE,
    TITLES,
    all_answers,
    are_known,
    play_solvers,
)
from wordle_rl.reports.tables import (
    difference_table,
    duration,
    facts_table,
    measures_table,
    percent,
    players_table,
    points,
    settings_table,
    stages_table,
)
from wordle_rl.runs.paths import EVAL

WHAT = {"test": "test secrets", "all": "all answers", "validation": "validation secrets"}
_LEVELS = ("random_consistent_allowed", "random_consistent")  # lines in the curves


def run_page(run: Run) -> str:
    """The HTML of the page of a run."""
    charts = Charts()
    pairs = boards_beside(run.start, run.end) if run.start and run.end else []
    what = WHAT.get(run.secrets, "secrets")
    both = [result for result in (run.start, run.end) if result]
    solvers = solvers_of(run)
    parts = [
        _result(run, charts, both, solvers, what),
        _curves(run, charts),
        Part(
            key="play", title="How it plays",
            charts=[charts.bars(histogram(both, what)),
                    *map(charts.curves, skill_by_turn(both, what))],
            tables=[measures_table(both, f"What was learnt, on {what}")] if both else [],
        ),
        Part(
            key="before-after", title="The same secrets before and after",
            lines=["By hash order alone: half are secrets whose result changed, for better or "
                   "worse."] if pairs else [],
            pairs=pairs,
        ),
        Part(key="games", title=f"All games on {what}", games=game_data(both)),
        _settings(run),
        _lineage(run),
        _cost(run, charts),
        Part(key="facts", title="How it was made", tables=[facts_table(run)]),
    ]  # fmt: skip
    return render(f"Run {run.name}", facts_of(run), run.missing, parts, charts.styles)


def facts_of(run: Run) -> list[str]:
    """The lines below the title."""
    choices = run.manifest.get("choices", {})
    chosen = [
        f"{name}={choices[name]}" for name in ("model", "algorithm", "reward") if name in choices
    ]
    steps = f"{run.metrics[-1]['step']} steps" if run.metrics else "no step yet"
    took = [duration(run.seconds)] if run.seconds is not None else []
    status = str(run.manifest.get("status", "status unknown"))
    started = str(run.manifest.get("started", ""))[:19].replace("T", " ")
    return [" · ".join([part for part in (status, steps, *took, started, *chosen) if part])]


def solvers_of(run: Run) -> dict[str, Result]:
    """The scripted players on the secrets of the run's games; empty for other lists or rules."""
    result = next((r for r in (run.end, run.start) if r and r.boards), None)
    if result is None or not _has_solvers(run):
        return {}
    return play_solvers([board.secret for board in result.boards])


def _has_solvers(run: Run) -> bool:
    return are_known(run.words_digest, run.max_turns) and not run.hard_mode


def titled(name: str, solver: Result, teachers: set[str]) -> Result:
    """A scripted player, marked if the model imitated it."""
    return replace(solver, label=f"teacher: {solver.label}") if name in teachers else solver


def titled_solvers(solvers: Mapping[str, Result], teachers: set[str]) -> list[Result]:
    """All scripted players, teachers first, then by wins."""
    names = sorted(solvers, key=lambda name: (name not in teachers, solvers[name].wins.value))
    return [titled(name, solvers[name], teachers) for name in names]


def headline(first: Result | None, last: Result | None, what: str) -> list[str]:
    """The result in sentences. first, last: before and after training."""
    if first is None and last is None:
        return ["This run has no result yet."]
    if first is None or last is None:
        only = first or last
        assert only is not None
        return [f"{_capital(only.label)}, the model wins {percent(only.wins)} % of {what}."]
    if last.step == 0:
        return [
            f"The best checkpoint is step 0, the start: it wins {percent(last.wins)} % of {what}, "
            "and no later validation was better. So this run shows no improvement."
        ]
    found = difference(first, last)
    ends = (
        f"The model wins {percent(last.wins)} % of {what} {last.label}, and {percent(first.wins)} "
        f"% {first.label}."
    )
    return [ends, *([describe_difference(found)] if found else [])]


def describe_difference(found: Difference, what: str = "a change") -> str:
    """A gain in wins in a sentence, with what its interval allows to say."""
    low, high = found.wins.low, found.wins.high
    text = (
        f"On the same {found.secrets} secrets this is {what} of {points(found.wins)} points "
        f"(95 % interval): {found.only_second} secrets went better and {found.only_first} worse."
    )
    if low is not None and high is not None and low <= 0 <= high:
        text += " The interval contains 0, so whether wins differ is undecided."
    return text


def _result(
    run: Run, charts: Charts, both: Sequence[Result], solvers: dict[str, Result], what: str
) -> Part:
    known = bool(solvers)
    marked = titled_solvers(solvers, run.teachers)
    lines = headline(run.start, run.end, what)
    if run.other:
        lines.append(
            f"On {run.other.games} test secrets, played greedily, the model wins "
            f"{percent(run.other.wins)} % {run.other.label}."
        )
    if not known and both:
        lines.append(
            "Teacher, solvers and optimum are known for the original word lists and six turns. "
            f"For others, {EVAL} run=<run> plays them."
        )
    everyone = [*reversed(both), *marked]
    found = difference(run.start, run.end) if run.start and run.end and run.end.step else None
    return Part(
        key="result", title="Result", lines=lines, strong=True,
        charts=[
            charts.dots(standings(everyone, what, len(both))),
            charts.dots(
                guess_standings(
                    everyone, what, len(both), [(OPTIMUM_TITLE, OPTIMUM.value)] if known else []
                )
            ),
        ] if everyone else [],
        tables=[
            players_table(everyone, what, optimum=known),
            difference_table("before", [(run.end.label, found)], "The change, secret by secret")
            if run.end and found else None,
        ] if everyone else [],
    )  # fmt: skip


def _curves(run: Run, charts: Charts) -> Part:
    win_levels, guess_levels = _levels(run)
    reports = [r for r in (run.start, run.end) if r] if run.secrets != "validation" else []
    reports += [run.other] if run.other else []
    what = [
        wins_of(run, win_levels, reports),
        guesses_of_run(run, guess_levels, reports),
        reward_of(run),
        *metrics_of(run),
    ]
    drawn = [charts.curves(one) for one in what]
    lines = ["Lines in grey are scripted players on all answers."] if win_levels else []
    return Part(key="curves", title="Curves", lines=lines if any(drawn) else [], charts=drawn)


def _levels(run: Run) -> tuple[Levels, Levels]:
    """Level lines of scripted players for wins and for guesses."""
    if not run.metrics or not _has_solvers(run):
        return [], []
    solvers = play_solvers(all_answers())
    names = dict.fromkeys([*(name for name in TITLES if name in run.teachers), *_LEVELS])
    chosen = [titled(name, solvers[name], run.teachers) for name in names][:3]
    return (
        [(result.label, result.wins.value) for result in chosen],
        [*((r.label, r.guesses.value) for r in chosen), ("optimum (published)", OPTIMUM.value)],
    )


def _settings(run: Run) -> Part:
    lines, tables = [], []
    if run.settings is None:
        lines.append("The settings cannot be read: config.yaml is missing or damaged.")
    elif not run.settings:
        lines.append("All settings are the default.")
    else:
        tables.append(settings_table(run.settings))
    return Part(key="settings", title="Settings", lines=lines, tables=tables)


def _lineage(run: Run) -> Part:
    tables = [stages_table(run.stages)] if run.stages else []
    return Part(
        key="lineage", title="Lineage", lines=[_capital(run.lineage)] if run.lineage else [],
        tables=tables,
    )  # fmt: skip


def _cost(run: Run, charts: Charts) -> Part:
    spent = {
        name: seconds
        for name in ("training", "reports")
        if (seconds := number(run.summary.get(f"seconds_{name}"))) is not None
    }
    lines = []
    if spent:
        told = ", ".join(f"{duration(seconds)} of {name}" for name, seconds in spent.items())
        lines.append(f"The last process of the run took {told}, validations within training.")
    games = run.series("total/games")[1]
    if games:
        lines.append(f"{games[-1]:,.0f} training games were played.")
    return Part(
        key="cost", title="Time and memory", lines=lines,
        charts=[charts.bars(time_of(run)), charts.curves(memory_of(run))],
    )  # fmt: skip


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
