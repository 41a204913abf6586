"""A real study: two runs of a very small model, from the command line to the report."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.studies import stored
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.paths import ROOT

pytestmark = pytest.mark.slow

SETTINGS = [
    "model=untrained",
    "model.shape.hidden_size=16",
    "model.shape.layers=1",
    "model.shape.heads=2",
    "model.shape.kv_heads=1",
    "model.shape.intermediate_size=16",
    "words.test=4",
    "words.val=4",
    "logger=none",
    "trainer.show_games=0",
    "backend.accelerator=cpu",
    "backend.precision=fp32",
]
STUDY = [
    "hydra.sweeper.name=tiny",
    "hydra.sweeper.jobs=2",
    "hydra.sweeper.budget.games=16",
    "hydra.sweeper.budget.games_per_step=8",
    "hydra.sweeper.budget.validations=2",
    "hydra.sweeper.confirm_seeds=[]",
    "seed=0",
]


def test_each_trial_plays_its_budget_and_the_study_ends_with_its_page(tmp_path):
    root, answers = tmp_path, tmp_path / "answers.txt"
    place = f"hydra.sweeper.folder='{root}/study'"
    answers.write_text("\n".join(a + "o" + b + "e" + c for a in "bcd" for b in "lr" for c in "dst"))
    result = subprocess.run(
        [
            sys.executable,
            "train.py",
            "-m",
            "experiment=study",
            *STUDY,
            place,
            *SETTINGS,
            "trainer.report=true",
            "hydra.sweeper.analysis.metrics=[train/format,nothing]",
            "optim.clip_grad_norm=0.3,1.0",
            f"words.answers='{answers}'",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "study tiny is finished" in result.stdout
    assert f"report: {root / 'study' / 'README.md'}" in result.stdout
    trials = stored(root)
    assert {trial["state"] for trial in trials} == {"complete"}
    assert sorted(str(trial["optim.clip_grad_norm"]) for trial in trials) == ["0.3", "1.0"]
    for trial in trials:
        run = Path(trial["run"])
        summary = json.loads((run / "summary.json").read_text())
        assert trial["val_win_rate"] == summary["val_win_rate"] and trial["games"] == 16
        assert trial["test_win_rate"] == summary["win_rate"]
        assert [games for games, _ in trial["curve"]] == [0, 8, 16] and trial["seconds"] > 0.0
        assert 0.0 <= trial["no_spread"] <= 1.0
        steps = [row for row in StepLog(run / "metrics.jsonl").read() if "train/format" in row]
        values = [row["train/format"] for row in steps[-math.ceil(len(steps) / 4) :]]
        assert trial["metrics"] == {"train/format": pytest.approx(np.mean(values))}
    page = (root / "study" / "README.md").read_text()
    assert "| clip_grad_norm=1 | 1 | 16 |" in page
    assert re.search(r"\| minutes +\| train/format +\|\n", page), "nothing has no column"
    assert (root / "study" / "curves.png").is_file()
