"""The storage of a study: what it accepts, and two workers that want the same trial at once."""

from __future__ import annotations

import sys
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

from wordle_rl.sweeps.dead_workers import WorkerLock, take_over_trials
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


def take_and_die(study: optuna.Study, folder: Path) -> None:
    """Take the queued trial as a worker that then dies."""
    number = study._pop_waiting_trial_id()
    assert number is not None
    lock = WorkerLock(folder)
    lock.sign(optuna.Trial(study, number))
    lock._file.close()  # as the kernel does when a process dies


def test_two_workers_never_take_the_same_trial(tmp_path, monkeypatch):
    studies = open_twice(tmp_path)
    with slow_to_write(monkeypatch):
        taken = at_once(lambda study: study._pop_waiting_trial_id(), studies)
    assert sorted(taken, key=str) == [1, None]


def test_two_workers_queue_a_dead_workers_trial_once(tmp_path, monkeypatch):
    studies = open_twice(tmp_path)
    take_and_die(studies[0], tmp_path)
    with slow_to_write(monkeypatch):
        at_once(take_over_trials, studies)
    found = studies[0].get_trials()
    assert [t.state.name for t in found] == ["FAIL", "WAITING"]
    assert found[1].system_attrs["fixed_params"] == {"x": 1}


def test_a_trial_that_killed_four_workers_stays_failed(tmp_path):
    study, _ = open_twice(tmp_path)
    for _ in range(4):
        take_and_die(study, tmp_path)
        take_over_trials(study)
    assert [t.state.name for t in study.get_trials()] == ["FAIL"] * 4


def test_a_journal_file_is_refused_in_one_line_that_names_a_database_instead(tmp_path):
    with pytest.raises(ValueError, match="not a journal file: use sqlite") as error:
        open_storage(f"journal:{tmp_path}/journal.log", heartbeat=60, grace=180)
    assert "postgresql" in str(error.value) and "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())


def test_a_missing_driver_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as where it is not installed
    address = "postgresql+psycopg://me@127.0.0.1:1/studies"
    with pytest.raises(ValueError, match=r"needs psycopg, which is not installed: pip"):
        open_storage(address, heartbeat=60, grace=180)
