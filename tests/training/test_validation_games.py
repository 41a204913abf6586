"""A run keeps every game of every validation."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.runs import metrics_of, run, settings


def test_a_run_writes_every_game_of_every_validation(tmp_path: Path) -> None:
    given = [*settings(tmp_path, "sft"), "trainer.steps=3", "trainer.report=false"]
    given += ["trainer.validation_samples=2"]
    (root := tmp_path / "runs").mkdir()
    _, folder = run(root, *given)
    lines = (folder / "validation_games.jsonl").read_text().splitlines()
    games = [json.loads(line) for line in lines]
    assert [game["step"] for game in games] == [0] * 12 + [3] * 12  # 6 secrets
    assert [game["secret"] for game in games[:12]] == [game["secret"] for game in games[12:]]
    for step, metrics in ((0, metrics_of(folder)[0]), (3, metrics_of(folder)[-1])):
        own = [game for game in games if game["step"] == step]
        mean = np.mean([game["reward"]["total"] for game in own])
        assert metrics["val/reward"] == pytest.approx(mean)
