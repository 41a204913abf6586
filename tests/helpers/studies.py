"""Small studies of fake runs, in this process or in workers of their own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from wordle_rl.runs.files import read_json
from wordle_rl.sweeps import run, trial
from wordle_rl.sweeps.plan import StudyPlan, plan_study

FAKE = [sys.executable, str(Path(__file__).with_name("fake_train.py"))]


def plan_of(root: Path, **node: Any) -> StudyPlan:
    """A study in a folder: a grid over x, unless the node says otherwise."""
    spec = {
        "name": "study",
        "params": {"x": "choice(0.1, 0.9, 0.5)"},
        "folder": str(root / "study"),
        **node,
    }
    rollout = {"groups": 4, "num_generations": 2}
    return plan_study(spec, [], lambda overrides: {"rollout": rollout})


def run_fakes(root: Path, do: Callable[[StudyPlan], object] = run.run_trials, **node: Any) -> None:
    """Do a study whose trials are fake_train.py, and look at them often."""
    with patch.object(trial, "train_command", lambda: FAKE), patch.object(run, "POLL", 0.05):
        do(plan_of(root, **node))


def work(root: Path, **node: Any) -> list[str]:
    """Do a study in this process. Returns the lines that it printed."""
    with redirect_stdout(io.StringIO()) as output:
        run_fakes(root, **node)
    return output.getvalue().splitlines()


def worker(root: Path, fake: Mapping[str, Any], **node: Any) -> subprocess.Popen[str]:
    """Do a study in a process of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, str(root), json.dumps(node)],
        env={**os.environ, "FAKE": json.dumps(fake), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def stored(root: Path, part: str = "search") -> list[dict[str, Any]]:
    """The ended trials of a study's round, as study.json has them."""
    path = root / "study" / "study.json"
    trials = read_json(path)["trials"] if path.exists() else []
    return [t for t in trials if t["round"] == part and t["state"] != "running"]


def states(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    return [trial["state"] for trial in trials]


def steps_done(root: Path) -> dict[str, list[int]]:
    """The steps that the runs in each trial's folder did, in their order."""
    steps = {}
    trials = root / "study" / "trials"
    for path in sorted(trials.rglob("steps.log")):
        records: Sequence[dict[str, Any]] = [json.loads(s) for s in path.read_text().splitlines()]
        steps[str(path.parent.parent.relative_to(trials))] = [r["step"] for r in records]
    return steps


if __name__ == "__main__":
    run_fakes(Path(sys.argv[1]), **json.loads(sys.argv[2]))
