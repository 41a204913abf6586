"""The study of pretrained sizes, run on small random models in place of Qwen's weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import tiny
from tests.helpers.studies import stored
from wordle_rl.runs.paths import ROOT

SMALL = [
    "words.test=4", "words.val=4", "rollout.groups=2", "trainer.steps=1",
    "trainer.validate_every=1", "trainer.show_games=0", "backend.precision=fp32",
    "backend.accelerator=cpu", "backend.threads=1", "logger=none", "seed=0",
    "hydra.sweeper.poll=0.2",
]  # fmt: skip


@pytest.mark.slow
def test_both_sizes_imitate_and_then_play_from_their_own_adapters(tmp_path: Path) -> None:
    arms = []
    for arm, model, factor in (("1.5 B", "qwen1.5b", 1.0), ("3 B", "qwen3b", 2.0)):
        folder = tmp_path / model
        inner = tiny.qwen_like_tokenizer()
        tiny.qwen(len(inner), factor=factor).save_pretrained(folder)
        inner.save_pretrained(folder)
        arms.append(f"{arm}:['model={model}','1: model.path={folder}']")
    places = [f"hydra.sweeper.folder={tmp_path}/study", f"hydra.sweeper.trials={tmp_path}/trials"]
    done = subprocess.run(
        [sys.executable, "train.py", "-m", "sweep=pretrained_size", *SMALL, *places,
         f"hydra.sweeper.arms={{{','.join(arms)}}}"],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    trials = stored(tmp_path, "pretrained_size").trials
    assert {t.state.name for t in trials} == {"COMPLETE"} and len(trials) == 2
    for trial in trials:
        run = Path(trial.user_attrs["run"])
        summary = json.loads((run / "summary.json").read_text())
        assert summary["games"] == 4
        adapter = json.loads((run / "model" / "adapter_config.json").read_text())
        model = {"1.5 B": "qwen1.5b", "3 B": "qwen3b"}[trial.params["arm"]]
        assert adapter["base_model_name_or_path"] == str(tmp_path / model)
