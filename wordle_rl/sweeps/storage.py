"""Where a study is kept, and who is dead in it.

sqlite for one machine, any other database that Optuna knows for several, a journal file
(journal:<path>) for machines that share a disk. A trial's worker is known to be dead when its
heartbeat is old, or at once when it was on this machine and its lock is free.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event
from sqlalchemy.engine import Connection, make_url

from wordle_rl.runs.addresses import JOURNAL, hidden, readable, shown_address

MAX_RETRY = 3  # deaths that a trial survives
SQLITE_TIMEOUT = 120.0  # seconds that a write waits while others hold the file
_ROOT, _HISTORY = "failed_trial", "retry_history"  # Optuna's own names, so that its tools know them
_WORKER, _BEAT = "worker", "heartbeat"
_OF_ATTEMPT = (_WORKER, _BEAT, "cause")  # what a trial that is queued again must not inherit


def open_storage(url: str, *, heartbeat: int, grace: int) -> optuna.storages.BaseStorage:
    """The storage of a URL. Raises ValueError when it cannot be opened."""
    if url.startswith(JOURNAL):
        path = Path(url.removeprefix(JOURNAL))
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(path)))
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite:///"):
        file = (make_url(url).database or "").removeprefix("file:")
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        options = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            storage = RDBStorage(
                url, engine_kwargs=options, heartbeat_interval=heartbeat, grace_period=grace,
                heartbeat_stale_trial_callback=lambda study, trial: retry(study, trial, died=True),
            )  # fmt: skip
        except Exception as error:
            shown = shown_address(url)
            raise ValueError(f"hydra.sweeper.storage={shown}: {_cause(url, error)}") from None
    if storage.engine.name == "sqlite":
        # Optuna reads a trial's state, then writes it, and relies on SELECT ... FOR UPDATE to keep
        # other workers out in between. SQLite ignores that, so it locks the file before it reads.
        event.listen(storage.engine, "begin", _lock_file)
    return storage


def _lock_file(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _cause(url: str, error: Exception) -> str:
    """SQLAlchemy and the drivers have many ways to say it, some with the address in them."""
    if not readable(url) or isinstance(error, ValueError | LookupError):
        return (
            "cannot be opened; an address is <scheme>://<user>:<password>@<host>/<database>, with "
            "special characters in its parts percent-encoded, such as %40 for @, or journal:<file>"
        )
    said = next((line for line in str(error).splitlines() if line.strip()), repr(error))
    return hidden(said, [url])


def root_number(trial: FrozenTrial) -> int:
    """The number of the trial that this one goes on with, or its own."""
    return trial.system_attrs.get(_ROOT, trial.number)


def retry(study: optuna.Study, trial: FrozenTrial, *, died: bool) -> None:
    """Queue a trial again, to go on in its folder; not without end when its worker died."""
    history = [*trial.system_attrs.get(_HISTORY, [])]
    if died:
        history.append(trial.number)
    if len(history) > MAX_RETRY:
        return
    study.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={k: v for k, v in trial.user_attrs.items() if k not in _OF_ATTEMPT},
            system_attrs={**trial.system_attrs, _ROOT: root_number(trial), _HISTORY: history},
        )
    )


class Worker:
    """This process as the others see it: a lock that the kernel frees when the process dies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.host, self.cores = platform.node(), _cores()
        self.path = folder / f".worker-{self.host}-{os.getpid()}-{secrets.token_hex(3)}"
        self._file = open(self.path, "wb")  # noqa: SIM115  held as long as the process works
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        self._file.close()

    def sign(self, trial: optuna.Trial) -> None:
        """Say that a trial is this worker's."""
        trial.set_user_attr(
            _WORKER, {"host": self.host, "cores": sorted(self.cores), "lock": str(self.path)}
        )

    def shares_cores(self, trial: FrozenTrial) -> bool:
        """Whether a trial's worker runs on some of this one's cores."""
        other = trial.user_attrs.get(_WORKER, {})
        return other.get("host") == self.host and not self.cores.isdisjoint(other["cores"])

    def beat(self, trial: optuna.Trial) -> None:
        """Say that this worker lives, where the storage does not do it by itself."""
        if isinstance(trial.storage, JournalStorage):
            trial.set_user_attr(_BEAT, time.time())


def _cores() -> set[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def recover(study: optuna.Study, *, grace: int) -> None:
    """Queue again the trials of dead workers."""
    storage = study._storage
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)
    journal = isinstance(storage, JournalStorage)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _lock_is_free(trial) or (journal and _silent(trial, grace)):
            # another worker may have seen it first
            with suppress(UpdateFinishedTrialError):
                storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL)
                retry(study, trial, died=True)


def _lock_is_free(trial: FrozenTrial) -> bool:
    """Whether a trial's worker was on this machine and is gone."""
    worker = trial.user_attrs.get(_WORKER)
    if worker is None or worker["host"] != platform.node():
        return False
    try:
        with open(worker["lock"], "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except (BlockingIOError, FileNotFoundError):
        return False


def _silent(trial: FrozenTrial, grace: int) -> bool:
    """Whether a trial in a journal has had no heartbeat for too long."""
    begin = trial.datetime_start.timestamp() if trial.datetime_start else time.time()
    return time.time() - max(begin, trial.user_attrs.get(_BEAT, 0.0)) > grace


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process of this machine at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
