"""What a study prints while it runs: a line when a trial starts, and one when it ends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from wordle_rl.sweeps.means import Mean, format_mean
from wordle_rl.sweeps.space import Params, format_params

_STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


def print_line(line: str) -> None:
    print(line, flush=True)


def format_start(number: int, params: Params, folder: Path, resumed: bool) -> str:
    """resumed: some of the trial has run before, until it was stopped or its worker died."""
    begins = "resumes" if resumed else "starts"
    return f"trial {number}  {format_params(params)}  {begins} in {_shorten_path(folder)}"


def format_confirmation(best: Params, seeds: Sequence[int]) -> str:
    found = f"best on validation secrets: {format_params(best)}; " if best else ""
    return f"{found}now with fresh seeds {', '.join(map(str, seeds))}"


def format_trial(trial: FrozenTrial, trials: Sequence[FrozenTrial], left: int) -> str:
    """Number, parameters, state, best so far, and time left."""
    complete = [(t.value, t.number) for t in trials
                if t.state == TrialState.COMPLETE and t.value is not None]  # fmt: skip
    best = max(complete, key=lambda found: found[0], default=None)
    value = max(trial.intermediate_values.values(), default=None)
    value = trial.value if trial.state == TrialState.COMPLETE else value
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


def format_ending(
    name: str, best: Params | None, trials: Sequence[FrozenTrial], failed: int
) -> str:
    """best: empty in a study of seeds alone. failed: points of a grid without a result."""
    if best is None:
        found = "no trial is complete"
    else:
        found = f"best on validation secrets: {format_params(best)}" if best else _sum_up(trials)
    again = f"; {failed} failed, run the same command to try again" if failed else ""
    return f"study {name} is finished; {found}{again}"


def _sum_up(trials: Sequence[FrozenTrial]) -> str:
    """Mean, interval and each seed of a study that varies seeds alone."""
    wins = {t.params.get("seed"): t.value for t in trials if t.state == TrialState.COMPLETE}
    each = ", ".join(f"seed {seed} {100 * (value or 0.0):.1f}" for seed, value in wins.items())
    return f"validation wins {format_mean(Mean.of([*wins.values()]), scale=100)} % ({each})"


def _estimate_time_left(trials: Sequence[FrozenTrial], left: int) -> str:
    """From the mean time of ended trials, with as many side by side as there are now."""
    spent = [
        t.duration.total_seconds()
        for t in trials
        if t.state in (TrialState.COMPLETE, TrialState.PRUNED) and t.duration is not None
    ]
    if not spent or not left:
        return ""
    workers = 1 + sum(t.state == TrialState.RUNNING for t in trials)
    minutes = sum(spent) / len(spent) * left / workers / 60
    return f", about {minutes:.0f} min" if minutes < 120 else f", about {minutes / 60:.1f} h"


def _shorten_path(path: Path) -> str:
    """The path relative to the working directory, if it is inside."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
