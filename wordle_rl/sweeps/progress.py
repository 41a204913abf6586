"""What a study prints: a line when a trial starts and when it ends, and a table at the end."""

from __future__ import annotations

import math
import os
import shutil
import statistics
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.table import Table
from scipy.special import stdtrit

from wordle_rl.sweeps.records import read_point
from wordle_rl.sweeps.space import Params, format_params

_STATES = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip
_WIDTH = 100  # columns at most
_FIGURES = {  # title: figure of a trial, factor, digits
    "test wins %": ("test_win_rate", 100, 1),
    "guesses (test)": ("test_mean_guesses_with_losses", 1, 2),
    "minutes": ("seconds", 1 / 60, 1),
}


def print_line(line: str) -> None:
    print(line, flush=True)


def format_start(trial: FrozenTrial, folder: Path, *, resumed: bool) -> str:
    """resumed: some of the trial has run before, until it was stopped or killed."""
    begins, where = "resumes" if resumed else "starts", os.path.relpath(folder)
    where = str(folder) if where.startswith("..") else where
    return f"trial {trial.number}  {format_params(trial.params)}  {begins} in {where}"


def format_confirmation(best: Params, seeds: Sequence[int]) -> str:
    found = f"best on validation secrets: {format_params(best)}; " if best else ""
    return f"{found}now with fresh seeds {', '.join(map(str, seeds))}"


def format_trial(trial: FrozenTrial, trials: Sequence[FrozenTrial], left: int) -> str:
    """Number, parameters, state, best so far, and time left."""
    complete = [(t.value or 0.0, t.number) for t in trials if t.state == TrialState.COMPLETE]
    best = max(complete, key=lambda found: found[0], default=None)
    value = trial.value
    if trial.state != TrialState.COMPLETE:
        value = max(trial.intermediate_values.values(), default=None)
    parts = [
        f"trial {trial.number}",
        format_params(trial.params),
        _STATES.get(trial.state, trial.state.name.lower()),
        *([f"{100 * value:.1f} %"] if value is not None else []),
        *([trial.user_attrs["cause"]] if trial.state == TrialState.FAIL else []),
        f"best {100 * best[0]:.1f} % (trial {best[1]})" if best else "none complete yet",
        f"{left} to go" + _estimate_time_left(trials, left),
    ]
    return "  ".join(parts)


def _estimate_time_left(trials: Sequence[FrozenTrial], left: int) -> str:
    """From the mean time of ended trials, with as many side by side as there are now."""
    spent = [t.duration.total_seconds() for t in trials
             if t.state in (TrialState.COMPLETE, TrialState.PRUNED) and t.duration]  # fmt: skip
    if not spent or not left:
        return ""
    workers = 1 + sum(t.state == TrialState.RUNNING for t in trials)
    minutes = sum(spent) / len(spent) * left / workers / 60
    return f", about {minutes:.0f} min" if minutes < 120 else f", about {minutes / 60:.1f} h"


def format_ending(
    name: str, best: Params | None, trials: Sequence[FrozenTrial], failed: int
) -> str:
    """best: empty in a study of seeds alone. failed: points of a grid without a result."""
    found = "no trial is complete"
    if best:
        found = f"best on validation secrets: {format_params(best)}"
    elif best is not None:
        wins = {t.params.get("seed"): t.value for t in trials if t.state == TrialState.COMPLETE}
        each = ", ".join(f"seed {seed} {100 * (value or 0.0):.1f}" for seed, value in wins.items())
        mean = format_mean(wins.values(), 100, 1)
        found = f"validation wins {mean} % ({each})"
    again = f"; {failed} failed, run the same command to try again" if failed else ""
    return f"study {name} is finished; {found}{again}"


def format_mean(values: Iterable[float | None], scale: float, digits: int, sign: str = "") -> str:
    """A mean over seeds with its 95 % interval (Student's t), - without values."""
    given = [scale * value for value in values if value is not None and not math.isnan(value)]
    if not given:
        return "-"
    mean = f"{statistics.fmean(given):{sign}.{digits}f}"
    if len(given) == 1:
        return mean
    half = stdtrit(len(given) - 1, 0.975) * statistics.stdev(given) / math.sqrt(len(given))
    return f"{mean} ± {half:.{digits}f}"


def format_arms(trials: Sequence[FrozenTrial]) -> str:
    """Means over the seeds of each arm with their 95 % intervals, the most wins first.

    As wide as the terminal, at most 100 columns.
    """
    arms: dict[str, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.state != TrialState.FAIL or "cause" in trial.user_attrs:
            arm = {name: value for name, value in read_point(trial).items() if name != "seed"}
            arms.setdefault(format_params(arm) or "all", []).append(trial)
    table = Table(box=None, pad_edge=False)
    table.add_column("arm", overflow="fold")
    for title in ("seeds", "validation wins %", *_FIGURES):
        table.add_column(title, justify="right")
    rows = []
    for arm, own in arms.items():
        done = [trial for trial in own if trial.state == TrialState.COMPLETE]
        wins = [trial.value or 0.0 for trial in done]
        figures = [
            format_mean((trial.user_attrs.get(name) for trial in done), scale, digits)
            for name, scale, digits in _FIGURES.values()
        ]
        count = f"{len(done)} of {len(own)}" if len(done) < len(own) else str(len(done))
        best = statistics.fmean(wins) if wins else -1.0
        rows.append((best, (arm, count, format_mean(wins, 100, 1), *figures)))
    for _, row in sorted(rows, key=lambda row: -row[0]):
        table.add_row(*row)
    return format_table(table)


def format_table(table: Table) -> str:
    """The text of a table, at most 100 columns wide."""
    out = StringIO()
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    Console(file=out, width=width, highlight=False, markup=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
