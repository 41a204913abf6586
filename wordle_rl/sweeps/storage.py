"""The database of a study: sqlite on one machine, PostgreSQL for several."""

from __future__ import annotations

import fcntl
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.engine import Connection, make_url

from wordle_rl.runs.addresses import hidden, readable, shown_address
from wordle_rl.runs.libraries import missing
from wordle_rl.sweeps.dead_workers import requeue_trial

SQLITE_TIMEOUT = 120.0  # seconds that a worker waits while others hold the file


def open_storage(url: str, *, heartbeat: int, grace: int) -> RDBStorage:
    """The storage at a URL.

    heartbeat: seconds between a worker's signs of life. grace: seconds of silence after which its
    trial is queued again. Raises ValueError when the storage cannot be opened.
    """
    if url.startswith("journal:"):
        raise ValueError(
            "hydra.sweeper.storage must be the URL of a database, not a journal file: use "
            "sqlite:///<file> on one machine, or postgresql+psycopg://<user>@<host>/<database> "
            "for several"
        )
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("sqlite:///"):
        file = (make_url(url).database or "").removeprefix("file:")
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        options = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            storage = StudyStorage(
                url, engine_kwargs=options, heartbeat_interval=heartbeat, grace_period=grace,
                heartbeat_stale_trial_callback=lambda study, trial: requeue_trial(
                    study, trial, died=True
                ),
            )  # fmt: skip
        except Exception as error:
            shown = shown_address(url)
            raise ValueError(
                f"hydra.sweeper.storage={shown}: {_explain_failure(url, error)}"
            ) from None
    if storage.engine.name == "sqlite":
        event.listen(storage.engine, "begin", storage.lock_sqlite_file)
    return storage


class StudyStorage(RDBStorage):
    """Optuna's storage, in which no two workers take the same trial from a sqlite file.

    Optuna reads a trial's state, then writes it, and relies on SELECT ... FOR UPDATE to keep other
    workers out in between. SQLite ignores that, so the file is locked before the state is read.
    Other transactions do not lock it: a worker that is suspended in one must not stop the others.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._changing = threading.local()  # .state: whether this thread changes a trial's state
        super().__init__(*arguments, **settings)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        self._changing.state = True
        try:
            return super().set_trial_state_values(trial_id, state, values)
        finally:
            self._changing.state = False

    def lock_sqlite_file(self, connection: Connection) -> None:
        """Called when a transaction begins."""
        if getattr(self._changing, "state", False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def _explain_failure(url: str, error: Exception) -> str:
    """The cause in one line, without the URL's password, which drivers may quote."""
    if not readable(url) or isinstance(error, ValueError | LookupError):
        return (
            "cannot be opened; an address is <scheme>://<user>:<password>@<host>/<database>, with "
            "special characters in its parts percent-encoded, such as %40 for @"
        )
    if isinstance(error, ImportError) and (advice := missing(error)):
        return advice
    said = next((line for line in str(error).splitlines() if line.strip()), repr(error))
    return hidden(said, [url])


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one process of this machine at a time into the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
