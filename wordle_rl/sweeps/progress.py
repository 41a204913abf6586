"""What a study says while it runs: a line when a trial starts, and one when it ends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from wordle_rl.sweeps.means import Mean, shown_mean
from wordle_rl.sweeps.space import Params, shown

_STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


def say(line: str) -> None:
    print(line, flush=True)


def start(number: int, params: Params, folder: Path, gone_on_with: bool) -> str:
    """gone_on_with: an earlier trial of the same parameters was stopped, or its worker died."""
    state = "goes on" if gone_on_with else "running"
    return f"trial {number}  {shown(params)}  {state} in {_short(folder)}"


def confirming(best: Params, seeds: Sequence[int]) -> str:
    found = f"best on validation secrets: {shown(best)}; " if best else ""
    return f"{found}again with seeds {', '.join(map(str, seeds))}"


def line(trial: FrozenTrial, trials: Sequence[FrozenTrial], left: int) -> str:
    """Number, parameters, state, best so far, time left."""
    complete = [(t.value, t.number) for t in trials
                if t.state == TrialState.COMPLETE and t.value is not None]  # fmt: skip
    best = max(complete, key=lambda found: found[0], default=None)
    value = max(trial.intermediate_values.values(), default=None)
    value = trial.value if trial.state == TrialState.COMPLETE else value
    parts = [
        f"trial {trial.number}",
        shown(trial.params),
        _STATES.get(trial.state, trial.state.name.lower()),
        *([f"{100 * value:.1f} %"] if value is not None else []),
        *([trial.user_attrs["cause"]] if trial.state == TrialState.FAIL else []),
        f"best {100 * best[0]:.1f} % (trial {best[1]})" if best else "none complete yet",
        f"{left} to go" + _time_left(trials, left),
    ]
    return "  ".join(parts)


def ending(
    name: str, best: Params | None, trials: Sequence[FrozenTrial], lost: int, folder: Path
) -> str:
    """best: empty in a study of seeds alone. lost: points of a grid that failed."""
    if best is None:
        found = "no trial is complete"
    else:
        found = f"best on validation secrets: {shown(best)}" if best else _seeds(trials)
    tried = f"; {lost} of its trials failed, which the same command tries again" if lost else ""
    return f"study {name} is finished, {found}{tried}; python -m wordle_rl.study {_short(folder)}"


def _seeds(trials: Sequence[FrozenTrial]) -> str:
    """Mean, interval and each seed of a study that compares nothing else."""
    wins = {t.params.get("seed"): t.value for t in trials if t.state == TrialState.COMPLETE}
    each = ", ".join(f"seed {seed} {100 * (value or 0.0):.1f}" for seed, value in wins.items())
    return f"validation wins {shown_mean(Mean.of([*wins.values()]), scale=100)} % ({each})"


def _time_left(trials: Sequence[FrozenTrial], left: int) -> str:
    """From the mean time of the trials that ended; as many at once as there are now."""
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


def _short(path: Path) -> str:
    """Relative to where the command was typed, if it lies there."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
