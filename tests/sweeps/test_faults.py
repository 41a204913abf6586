"""What may go wrong while a study runs, and how it ends. Runs are fake (fake_train.py)."""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import error_of
from tests.helpers.studies import run_fakes, states, steps_done, stored, work, worker
from wordle_rl.runs.files import StepLog, read_json, write_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.run import StudyStopped, run_study

pytestmark = pytest.mark.slow

TWO = {"params": {"x": "choice(0.1, 0.9)"}}
TPE = {"_target_": "optuna.samplers.TPESampler", "seed": 0, "constant_liar": True}
SIX = [1, 2, 3, 4, 5, 6]
MEDIAN = {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 1}


def whole_study(plan: StudyPlan) -> None:
    """From the plan to the page."""
    run_study(plan, lambda _: None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Tells the runs of this process what to do wrong."""
    return lambda **settings: monkeypatch.setenv("FAKE", json.dumps(settings))


def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def hold(root: Path, **settings: Any) -> dict[str, Any]:
    """Runs that wait after their second step until release()."""
    return {**settings, "hold": str(root / "go")}


def release(root: Path) -> None:
    (root / "go").touch()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_of(root: Path) -> set[int]:
    """The processes that did the steps of a study's runs."""
    logs = [*(root / "study" / "trials").rglob("steps.log")]
    return {json.loads(s)["pid"] for log in logs for s in log.read_text().splitlines()}


def complete_points(root: Path) -> list[float]:
    """The values of x with a complete trial."""
    return sorted(trial["x"] for trial in stored(root) if trial["state"] == "complete")


def test_after_kill_9_of_a_worker_another_one_finishes_its_trial(tmp_path):
    fake = hold(tmp_path, steps=6)
    processes = [worker(tmp_path, fake, **TWO) for _ in range(2)]
    until(lambda: [*steps_done(tmp_path).values()] == [[1, 2]] * 2)
    processes[0].kill()
    processes[0].communicate()
    # The run of the dead worker goes on. Nobody else touches its folder before it has ended.
    assert all(map(is_alive, processes_of(tmp_path)))
    release(tmp_path)
    out, _ = processes[1].communicate(timeout=240)
    assert processes[1].returncode == 0, out
    assert states(stored(tmp_path)) == ["complete"] * 2
    assert complete_points(tmp_path) == [0.1, 0.9]
    assert steps_done(tmp_path) == {"0000": SIX, "0001": SIX}
    assert len(processes_of(tmp_path)) == 2


def test_after_kill_9_of_a_trial_it_continues_in_its_folder(tmp_path):
    fake = hold(tmp_path, steps=6)
    process = worker(tmp_path, fake, **TWO)
    until(lambda: steps_done(tmp_path).get("0000") == [1, 2])
    [child] = processes_of(tmp_path)
    os.kill(child, signal.SIGKILL)
    release(tmp_path)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0 and "was killed and continues" in out, out
    assert complete_points(tmp_path) == [0.1, 0.9]
    assert steps_done(tmp_path) == {"0000": SIX, "0001": SIX}
    assert len(processes_of(tmp_path)) == 3, "two processes did each step of the first trial once"


def test_after_kill_9_of_both_the_same_command_continues(tmp_path):
    fake = hold(tmp_path, steps=6)
    process = worker(tmp_path, fake, **TWO)
    until(lambda: steps_done(tmp_path).get("0000") == [1, 2])
    [child] = processes_of(tmp_path)
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate()
    release(tmp_path)
    successor = worker(tmp_path, fake, **TWO)
    out, _ = successor.communicate(timeout=240)
    assert successor.returncode == 0 and "resumes in" in out, out
    assert complete_points(tmp_path) == [0.1, 0.9]
    assert steps_done(tmp_path) == {"0000": SIX, "0001": SIX}
    trial = stored(tmp_path)[0]
    assert trial["games"] == 60 and len(trial["curve"]) == 6


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_the_runs_save_and_the_same_command_continues(tmp_path, signum, code):
    fake, node = hold(tmp_path, steps=4), {"jobs": 2}
    process = worker(tmp_path, fake, **node)
    until(lambda: [*steps_done(tmp_path).values()] == [[1, 2]] * 2)
    process.send_signal(signum)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == code and "same command to continue" in out
    assert len(processes_of(tmp_path)) == 2 and not any(map(is_alive, processes_of(tmp_path)))
    assert stored(tmp_path) == []
    release(tmp_path)
    successor = worker(tmp_path, fake, **node)
    out, _ = successor.communicate(timeout=240)
    assert successor.returncode == 0, out
    assert states(stored(tmp_path)) == ["complete"] * 3
    assert [*steps_done(tmp_path).values()] == [[1, 2, 3, 4]] * 3


@pytest.mark.parametrize("sampler", [None, TPE])
def test_two_workers_share_the_trials_of_one_folder(tmp_path, sampler):
    node: dict[str, Any] = {"params": {"x": "range(0, 5)"}}
    if sampler:
        node = {"params": {"x": "interval(0.0, 1.0)"}, "n_trials": 6, "sampler": sampler}
    processes = [worker(tmp_path, {"steps": 1}, **node) for _ in range(2)]
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert states(stored(tmp_path)) == ["complete"] * 6
    assert len(set(complete_points(tmp_path))) == 6 == len(steps_done(tmp_path))
    assert all("complete" in lines for lines in outputs), "both worked"


def test_a_poor_trial_is_pruned_and_its_run_ends(tmp_path, fake):
    fake(steps=6, seconds=0.1)
    work(tmp_path, params={"x": "choice(0.8, 0.1)"}, pruner=MEDIAN)
    assert states(stored(tmp_path)) == ["complete", "pruned"]
    trials = read_json(tmp_path / "study" / "study.json")["trials"]
    assert [trial["val_win_rate"] is None for trial in trials] == [False, True]
    assert steps_done(tmp_path)["0000"] == [1, 2, 3, 4, 5, 6]
    assert len(steps_done(tmp_path)["0001"]) < 6
    assert not any(map(is_alive, processes_of(tmp_path)))


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"fail": "the model is broken"}, "the model is broken (exit code 1"),
        ({"summary": False}, "exit code 0, no summary"),
        ({"value": math.nan}, "not a number"),
    ],
)
def test_three_failures_in_a_row_stop_a_study_with_the_cause(tmp_path, fake, how, cause):
    fake(steps=1, **how)
    node = {"params": {"x": "range(0, 3)"}}
    with pytest.raises(StudyStopped, match="3 trials failed in a row") as stop:
        work(tmp_path, **node)
    assert cause in str(stop.value)
    assert states(stored(tmp_path)) == ["failed"] * 3
    # Once mended, the same command continues and repeats what failed.
    fake(steps=1)
    work(tmp_path, **node)
    assert complete_points(tmp_path) == [0, 1, 2, 3]


def test_a_study_with_failed_trials_ends_with_exit_code_1(tmp_path, fake, capsys):
    fake(steps=1, fail="the model is broken")
    node: dict[str, Any] = {"do": whole_study, "params": {"x": "choice(0.1, 0.2)"}}
    with pytest.raises(SystemExit) as end:
        run_fakes(tmp_path, **node)
    assert end.value.code == 1
    assert "error: study study: 2 trials failed" in error_of(capsys.readouterr().err)
    fake(steps=1)
    run_fakes(tmp_path, **node)
    assert complete_points(tmp_path) == [0.1, 0.2]


def test_a_study_with_nothing_left_to_do_leaves_its_files_as_they_are(tmp_path, fake):
    fake(steps=1)
    run_fakes(tmp_path, whole_study)
    record = tmp_path / "study" / "study.json"
    write_json(record, dict(reversed(read_json(record).items())))  # another order says the same
    (tmp_path / "study" / "curves.png").write_bytes(b"of another matplotlib")
    names = ("study.json", "curves.png", "README.md")
    before = [(tmp_path / "study" / name).read_bytes() for name in names]
    run_fakes(tmp_path, whole_study)
    assert [(tmp_path / "study" / name).read_bytes() for name in names] == before


def test_other_settings_are_refused_by_name(tmp_path):
    work(tmp_path)
    with pytest.raises(ConfigError, match=r"started with another space, default: ") as error:
        work(tmp_path, params={"x": "choice(1, 2)"})
    assert "hydra.sweeper.name" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"another budget: "):
        work(tmp_path, budget={"games": 160})
    (tmp_path / "study" / "study.json").unlink()  # another study, with folders of its own
    work(tmp_path, params={"x": "choice(0.2, 0.3)"})
    assert complete_points(tmp_path) == [0.2, 0.3]
    assert [*steps_done(tmp_path).values()] == [[1, 2, 3, 4]] * 5


def test_a_worker_that_was_only_slow_keeps_its_trial(tmp_path):
    fake = hold(tmp_path, steps=4)
    sleeper = worker(tmp_path, fake, **TWO)
    until(lambda: steps_done(tmp_path).get("0000") == [1, 2])
    sleeper.send_signal(signal.SIGSTOP)
    rival = worker(tmp_path, fake, **TWO)
    until(lambda: steps_done(tmp_path).get("0001") == [1, 2])
    release(tmp_path)
    until(lambda: stored(tmp_path))
    sleeper.send_signal(signal.SIGCONT)
    outputs = [process.communicate(timeout=240)[0] for process in (sleeper, rival)]
    assert [sleeper.returncode, rival.returncode] == [0, 0], outputs
    assert [line.count("complete") for line in outputs] == [1, 1], "each its own"
    assert complete_points(tmp_path) == [0.1, 0.9]
    assert [*steps_done(tmp_path).values()] == [[1, 2, 3, 4]] * 2


def test_a_worker_reads_each_line_of_a_run_once(tmp_path, fake, monkeypatch):
    """And not all of them at each look, which costs half a core in a long run."""
    fake(steps=12, seconds=0.1)
    lines = StepLog._lines
    seen: list[int] = []

    def count(self: StepLog, *args: Any) -> Iterator[tuple[bytes, dict[str, Any]]]:
        for line, record in lines(self, *args):
            seen.append(record["step"])
            yield line, record

    monkeypatch.setattr(StepLog, "_lines", count)
    work(tmp_path, params={"x": "choice(0.5)", "seed": "choice(0, 1)"})
    assert len(seen) == 2 * 12
