"""The storage of a study when two workers want the same trial at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from wordle_rl.sweeps.storage import open_storage

TOGETHER = 0.5  # seconds that a worker waits between reading and writing for the other to read


def open_twice(folder: Path) -> list[optuna.Study]:
    """The same study of one queued trial, as two workers see it."""
    url = f"sqlite:///{folder}/study.db"
    storages = [open_storage(url, heartbeat=60, grace=180) for _ in range(2)]
    optuna.create_study(storage=storages[0], study_name="study").enqueue_trial({"x": 1})
    return [optuna.load_study(storage=storage, study_name="study") for storage in storages]


@contextmanager
def slow_to_write(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both workers read a trial's state before either writes, unless the storage prevents it."""
    check = RDBStorage.check_trial_is_updatable
    both = threading.Barrier(2)

    def check_and_wait(self: RDBStorage, trial_id: int, state: TrialState) -> None:
        check(self, trial_id, state)
        with suppress(threading.BrokenBarrierError):
            both.wait(TOGETHER)

    with monkeypatch.context() as patch:
        patch.setattr(RDBStorage, "check_trial_is_updatable", check_and_wait)
        yield


def at_once(action: Callable[[optuna.Study], Any], studies: list[optuna.Study]) -> list[Any]:
    with ThreadPoolExecutor(len(studies)) as pool:
        return [*pool.map(action, studies)]


def test_two_workers_never_take_the_same_trial(tmp_path, monkeypatch):
    studies = open_twice(tmp_path)
    with slow_to_write(monkeypatch):
        taken = at_once(lambda study: study._pop_waiting_trial_id(), studies)
    assert sorted(taken, key=str) == [1, None]
