"""What happens when a worker of a study dies: its child ends, and its trial is queued again.

Each child runs under a watchdog, which is this file started as a script. It stops the child when
the worker is gone. Other workers on the same machine see the death at once, because the kernel
frees the dead worker's lock. Workers elsewhere see it when the heartbeat in the database is old.
Whoever sees it first queues the trial again, to continue in the same folder.

The top imports the standard library alone, which keeps the watchdog small and quick to start.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

PATIENCE = 60.0  # seconds that a child may take to save after it was asked to stop
MAX_DEATHS = 3  # deaths of its workers that a trial survives
_ORDERS, _ALONE = "orders", "alone"  # whether a watched command reads the watchdog's input
_FIRST, _DEATHS = "failed_trial", "retry_history"  # Optuna's own names, so that its tools know them
_WORKER = "worker"  # the user attribute that names a trial's worker
_NOT_INHERITED = (_WORKER, "cause")  # user attributes that a trial queued again starts without


# -- how others know that a worker is alive --------------------------------------------------------


class WorkerLock:
    """Shows other processes that this worker lives; the kernel frees it when the process dies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.host, self.cores = platform.node(), _usable_cores()
        self.path = folder / f".worker-{self.host}-{os.getpid()}-{secrets.token_hex(3)}"
        self._file = open(self.path, "wb")  # noqa: SIM115  held as long as the process works
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        self._file.close()

    def sign(self, trial: optuna.Trial) -> None:
        """Record in the study that this worker runs a trial."""
        trial.set_user_attr(
            _WORKER, {"host": self.host, "cores": sorted(self.cores), "lock": str(self.path)}
        )

    def shares_cores(self, trial: FrozenTrial) -> bool:
        """Whether a trial's worker runs on some of this worker's cores."""
        other = trial.user_attrs.get(_WORKER, {})
        return other.get("host") == self.host and not self.cores.isdisjoint(other["cores"])


def _usable_cores() -> set[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _lock_is_free(trial: FrozenTrial) -> bool:
    """Whether a trial's worker ran on this machine and is gone."""
    worker = trial.user_attrs.get(_WORKER)
    if worker is None or worker["host"] != platform.node():
        return False
    try:
        with open(worker["lock"], "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except (BlockingIOError, FileNotFoundError):
        return False


# -- who takes over its trial ----------------------------------------------------------------------


def take_over_trials(study: optuna.Study) -> None:
    """Queue the trials of dead workers again."""
    import optuna
    from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
    from optuna.trial import TrialState

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)  # storage.py has it call requeue_trial
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _lock_is_free(trial):
            with suppress(UpdateFinishedTrialError):  # another worker was faster
                study._storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
                requeue_trial(study, trial, died=True)


def requeue_trial(study: optuna.Study, trial: FrozenTrial, *, died: bool) -> None:
    """Queue a trial again, to continue in its folder.

    died: its worker died. After MAX_DEATHS the trial stays failed, since it may be the reason.
    """
    import optuna
    from optuna.trial import TrialState

    deaths = [*trial.system_attrs.get(_DEATHS, [])]
    if died:
        deaths.append(trial.number)
    if len(deaths) > MAX_DEATHS:
        return
    study.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={k: v for k, v in trial.user_attrs.items() if k not in _NOT_INHERITED},
            system_attrs={**trial.system_attrs, _FIRST: first_number(trial), _DEATHS: deaths},
        )
    )


def first_number(trial: FrozenTrial) -> int:
    """The number under which a trial was first taken; it names the trial's folder."""
    return trial.system_attrs.get(_FIRST, trial.number)


# -- what happens to its child ---------------------------------------------------------------------


def watched(command: Sequence[str], *, orders: bool = False) -> list[str]:
    """Build a command line that runs the command under a watchdog.

    The command runs until it ends by itself, or until the watchdog's standard input closes. The
    input closes when the worker dies or closes its end. Then the watchdog asks the command to stop
    (SIGTERM), and kills the command's whole process group after PATIENCE. orders: whether the
    command reads what is written to that input.
    """
    script = [sys.executable, "-I", str(Path(__file__).resolve())]
    return [*script, str(PATIENCE), _ORDERS if orders else _ALONE, *command]


def wait_for_orphan(run: Path, check: Callable[[], None], poll: float) -> None:
    """Wait until the child of a dead worker, which may still be saving, has left its run folder.

    check: called about every `poll` seconds; may raise to stop waiting.
    Raises RunFolderError when the folder is still in use after PATIENCE.
    """
    from wordle_rl.runs.folder import RunFolder, RunFolderError

    end = time.monotonic() + PATIENCE + 10
    while True:
        try:
            with RunFolder(run).lock():
                return
        except RunFolderError:
            if time.monotonic() > end:
                raise
        check()
        time.sleep(min(poll, 1.0))


def _watch(patience: float, orders: bool, command: Sequence[str]) -> None:
    """Be the watchdog of a command; ends with its exit code."""
    # The worker handles Ctrl-C. Unlike SIG_IGN, a handler is not inherited by the command.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: None)
    child = subprocess.Popen(command, stdin=subprocess.PIPE if orders else subprocess.DEVNULL)
    threading.Thread(target=_stop_with_worker, args=(child, patience), daemon=True).start()
    code = child.wait()
    os._exit(code if code >= 0 else 128 - code)


def _stop_with_worker(child: subprocess.Popen[bytes], patience: float) -> None:
    while data := os.read(0, 1024):
        if child.stdin is not None:
            with suppress(OSError):  # the child has ended
                child.stdin.write(data)
                child.stdin.flush()
    child.terminate()
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _watch(float(sys.argv[1]), sys.argv[2] == _ORDERS, sys.argv[3:])
