"""What may go wrong while a study runs, and how it ends. Runs are fake (fake_train.py)."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.studies import plan_of, states, steps_done, stored, work, worker
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps import objective
from wordle_rl.sweeps.study_loop import StudyPaths, StudyStopped, _write_record

TWENTY = {"params": {"x": "range(0, 19)"}}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Tells the runs of this process what to do wrong."""
    return lambda **how: monkeypatch.setenv("FAKE", json.dumps(how))


def until(true: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def held(root: Path, **how: Any) -> dict[str, Any]:
    """Runs that wait after their second step until release()."""
    return {**how, "hold": str(root / "go")}


def release(root: Path) -> None:
    (root / "go").touch()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_of(root: Path) -> set[int]:
    """The processes that did the steps of a study's runs."""
    logs = [*(root / "trials").rglob("steps.log")]
    return {json.loads(s)["pid"] for log in logs for s in log.read_text().splitlines()}


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_study_tries_each_point_once_and_says_so(tmp_path):
    said = work(tmp_path)
    trials = stored(tmp_path).trials
    assert [t.params["x"] for t in trials] == [0.1, 0.9, 0.5]
    # 0.5 * x + 0.01 at each of four steps
    assert [t.value for t in trials] == pytest.approx([0.09, 0.49, 0.29])
    assert trials[0].intermediate_values == pytest.approx({1: 0.06, 2: 0.07, 3: 0.08, 4: 0.09})
    assert trials[0].user_attrs["games"] == 40 and trials[0].user_attrs["seconds"] == 2.0
    ended = [line for line in said if "to go" in line]
    assert [line.split()[:5] for line in ended] == [
        ["trial", str(i), f"x={x}", "complete", f"{value}"]
        for i, x, value in [(0, 0.1, 9.0), (1, 0.9, 49.0), (2, 0.5, 29.0)]
    ]
    assert "best 49.0 % (trial 1)  1 to go, about 0 min" in ended[1]
    assert "x=0.9" in said[-1]


def test_a_finished_study_run_again_changes_no_file(tmp_path):
    work(tmp_path, confirm_seeds=[7, 8])
    before = snapshot(tmp_path)
    said = work(tmp_path, confirm_seeds=[7, 8])
    assert snapshot(tmp_path) == before
    table, ending = said
    assert table.lstrip().startswith("arm ") and "finished" in ending


def test_winner_and_default_run_again_with_fresh_seeds(tmp_path):
    work(tmp_path, confirm_seeds=[7, 8], default={"x": 0.1})
    trials = stored(tmp_path, "study-confirm").trials
    assert sorted((t.params["arm"], t.params["seed"]) for t in trials) == [
        ("default", 7), ("default", 8), ("winner", 7), ("winner", 8),
    ]  # fmt: skip
    assert {t.params["arm"]: t.value for t in trials} == pytest.approx(
        {"winner": 0.49, "default": 0.09}
    )


def test_success_is_the_summary_whatever_the_exit_code(tmp_path, fake):
    fake(code=9)
    work(tmp_path)
    assert states(stored(tmp_path)) == ["COMPLETE"] * 3


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"fail": "the model is broken"}, "the model is broken (exit code 1"),
        ({"summary": False}, "exit code 0, no summary.json"),
        pytest.param({"value": math.nan}, "val_win_rate", marks=pytest.mark.slow),
        pytest.param({"value": None}, "is None, not a number", marks=pytest.mark.slow),
    ],
    ids=["error", "no summary", "nan", "null"],
)
def test_three_failures_in_a_row_stop_a_study_with_the_cause(tmp_path, fake, how, cause):
    fake(**how)
    node = {"params": {"x": "range(0, 3)"}}
    with pytest.raises(StudyStopped, match="trials 0, 1, 2 failed in a row") as stop:
        work(tmp_path, **node)
    assert cause in str(stop.value)
    assert states(stored(tmp_path)) == ["FAIL", "FAIL", "FAIL", "WAITING"]
    # Once mended, the same command continues and repeats what failed.
    fake(steps=1)
    work(tmp_path, **node)
    done = [t.params["x"] for t in stored(tmp_path).trials if t.state.name == "COMPLETE"]
    assert sorted(done) == [0, 1, 2, 3]


def test_one_point_that_fails_is_left_out_and_tried_again_by_the_same_command(tmp_path, fake):
    fake(fail="broken", fail_at=0.9)
    said = work(tmp_path)
    assert states(stored(tmp_path)) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert "x=0.5; 1 failed" in said[-1]
    fake()
    said = work(tmp_path)
    assert states(stored(tmp_path)) == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert said[-1].endswith("x=0.9")


def test_a_fault_of_the_worker_itself_is_raised_and_no_failed_trial(tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(objective, "run_child", broken)
    with pytest.raises(ZeroDivisionError):
        work(tmp_path, jobs=2)


def test_a_password_is_in_no_file(tmp_path, monkeypatch):
    url = "postgresql://me:secret@host/db"
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", f"hydra.sweeper.storage={url}"])
    paths = StudyPaths(folder=tmp_path, trials=tmp_path / "t", url=url)
    _write_record(plan_of(tmp_path, storage=url), paths)
    text = (tmp_path / "study.json").read_text()
    assert "postgresql://me:***@host/db" in text and "secret" not in text


def test_a_changed_space_is_refused_by_name(tmp_path):
    work(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(
        ConfigError, match=r"x was choice\(0.1, 0.9, 0.5\), is choice\(1, 2\)"
    ) as no:
        work(tmp_path, params={"x": "choice(1, 2)"})
    assert "hydra.sweeper.name" in str(no.value) and "\n" not in str(no.value)
    with pytest.raises(ConfigError, match="budget: games was None, is 160"):
        work(tmp_path, budget={"games": 160})
    assert snapshot(tmp_path) == before


@pytest.mark.slow
def test_a_study_may_grow(tmp_path):
    node = {"params": {"x": "interval(0.0, 1.0)"}, "sampler": {"name": "random"}}
    work(tmp_path, **node, n_trials=2)
    work(tmp_path, **node, n_trials=5)
    drawn = [t.params["x"] for t in stored(tmp_path).trials]
    assert len(set(drawn)) == 5 == states(stored(tmp_path)).count("COMPLETE")
    work(tmp_path / "at once", **node, n_trials=5)
    assert [t.params["x"] for t in stored(tmp_path / "at once").trials] == drawn


def test_a_bad_trial_is_pruned_and_its_child_ends(tmp_path, fake):
    fake(steps=6, seconds=0.1)
    work(tmp_path, params={"x": "choice(0.8, 0.1)"}, pruner={"name": "median", "startup_trials": 1})
    study = stored(tmp_path)
    assert states(study) == ["COMPLETE", "PRUNED"]
    assert steps_done(tmp_path)["0000"] == [1, 2, 3, 4, 5, 6]
    assert len(steps_done(tmp_path)["0001"]) < 6
    assert not any(map(alive, processes_of(tmp_path)))


@pytest.mark.slow
def test_a_worker_that_was_killed_is_replaced_and_no_step_is_counted_twice(tmp_path):
    fake, node = held(tmp_path, steps=8), {"params": {"x": "choice(0.1, 0.9)"}}
    killed = worker(tmp_path, fake, **node)
    until(lambda: len(steps_done(tmp_path).get("0000", [])) >= 2)
    [child] = processes_of(tmp_path)
    killed.kill()
    killed.communicate()
    until(lambda: not alive(child))  # a child ends with its parent
    release(tmp_path)
    after = worker(tmp_path, fake, **node)
    said, _ = after.communicate(timeout=240)
    assert after.returncode == 0, said
    trials = stored(tmp_path).trials
    assert [t.state.name for t in trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert sorted(t.params["x"] for t in trials[1:]) == [0.1, 0.9]
    # The retried trial continued in the first one's folder: two processes did each step once.
    every = list(range(1, 9))
    assert steps_done(tmp_path) == {"0000": every, "0001": every}
    assert len(processes_of(tmp_path)) == 3
    retried = next(t for t in trials[1:] if t.params["x"] == 0.1)
    assert retried.user_attrs["games"] == 80 and len(retried.intermediate_values) == 8


def test_another_worker_takes_over_from_one_that_was_killed(tmp_path):
    fake, node = held(tmp_path, steps=6), {"params": {"x": "choice(0.1, 0.9)"}}
    both = [worker(tmp_path, fake, **node) for _ in range(2)]
    until(lambda: len(steps_done(tmp_path)) == 2 and all(steps_done(tmp_path).values()))
    assert states(stored(tmp_path)) == ["RUNNING", "RUNNING"]
    both[0].kill()
    release(tmp_path)
    said, _ = both[1].communicate(timeout=240)
    both[0].communicate()
    assert both[1].returncode == 0, said
    assert sorted(states(stored(tmp_path))) == ["COMPLETE", "COMPLETE", "FAIL"]
    assert set(map(tuple, steps_done(tmp_path).values())) == {(1, 2, 3, 4, 5, 6)}


def stopped_between_writes(worker: subprocess.Popen[str], root: Path) -> bool:
    """Stop a worker, or let it go on if it holds the database."""
    worker.send_signal(signal.SIGSTOP)
    with contextlib.closing(sqlite3.connect(root / "study" / "study.db", timeout=0.5)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            worker.send_signal(signal.SIGCONT)
            return False
        database.rollback()
        return True


@pytest.mark.slow
def test_a_worker_that_was_only_slow_leaves_its_trial_to_the_one_that_took_it(tmp_path):
    fake = held(tmp_path, steps=4)
    node = {"params": {"x": "choice(0.1, 0.9)"}, "heartbeat": 1, "grace": 2}
    slow = worker(tmp_path, fake, **node)
    until(lambda: steps_done(tmp_path).get("0000"))
    until(lambda: stopped_between_writes(slow, tmp_path))
    release(tmp_path)  # its child continues
    said, _ = worker(tmp_path, fake, **node).communicate(timeout=240)
    slow.send_signal(signal.SIGCONT)
    late, _ = slow.communicate(timeout=240)
    assert slow.returncode == 0 and "another worker took over a trial" in late, said + late
    assert sorted(states(stored(tmp_path))) == ["COMPLETE", "COMPLETE", "FAIL"]
    assert list(steps_done(tmp_path).values()) == [[1, 2, 3, 4]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_two_workers_share_twenty_trials(tmp_path, sampler):
    node: dict[str, Any] = {**TWENTY, "sampler": {"name": sampler}}
    if sampler != "grid":
        node |= {"n_trials": 20, "params": {"x": "interval(0.0, 1.0)"}}
    both = [worker(tmp_path, {"steps": 1}, **node) for _ in range(2)]
    said = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    study = stored(tmp_path)
    done = [t.params["x"] for t in study.trials if t.state.name == "COMPLETE"]
    assert len(done) == len(set(done)) and 20 <= len(done) <= (20 if sampler == "grid" else 21)
    assert len(steps_done(tmp_path)) == len(done)
    assert all("complete" in lines for lines in said), "both must have worked"


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_a_signal_ends_the_children_and_the_same_command_continues(tmp_path, signum, code):
    fake, node = held(tmp_path, steps=4), {"jobs": 2}
    stopped = worker(tmp_path, fake, **node)
    until(lambda: [*steps_done(tmp_path).values()] == [[1, 2]] * 2)
    stopped.send_signal(signum)
    said, _ = stopped.communicate(timeout=240)
    assert stopped.returncode == code and "same command to continue" in said
    assert len(processes_of(tmp_path)) == 2 and not any(map(alive, processes_of(tmp_path)))
    release(tmp_path)
    after = worker(tmp_path, fake, **node)
    said, _ = after.communicate(timeout=240)
    assert after.returncode == 0, said
    assert states(stored(tmp_path)).count("COMPLETE") == 3
    assert list(steps_done(tmp_path).values()) == [[1, 2, 3, 4]] * 3


@pytest.mark.slow
def test_a_database_that_is_locked_for_20_seconds_is_waited_for(tmp_path):
    process = worker(tmp_path, {"steps": 6, "seconds": 0.2}, heartbeat=5, grace=60)
    until(lambda: len(steps_done(tmp_path).get("0000", [])) >= 2)
    lock = sqlite3.connect(tmp_path / "study" / "study.db", timeout=30)
    lock.execute("BEGIN EXCLUSIVE")
    time.sleep(20)
    assert process.poll() is None
    lock.rollback()
    lock.close()
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert states(stored(tmp_path)) == ["COMPLETE"] * 3
    assert list(steps_done(tmp_path).values()) == [[1, 2, 3, 4, 5, 6]] * 3
