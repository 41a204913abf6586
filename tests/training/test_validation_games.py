"""A run keeps every game of every validation."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.runs import metrics_of, run, settings


@pytest.mark.parametrize(("temperature", "training"), [(0.0, 1.0), (1.0, 0.1)])
def test_a_run_writes_every_game_of_every_validation_and_draws_it_at_its_own_temperature(
    temperature: float, training: float, tmp_path: Path
) -> None:
    given = [*settings(tmp_path, "sft"), "trainer.steps=3", "trainer.report=false"]
    given += ["trainer.validation_samples=2", f"trainer.validation_temperature={temperature}"]
    given += [f"sampling.temperature={training}"]
    (root := tmp_path / "runs").mkdir()
    _, folder = run(root, *given)
    lines = (folder / "validation_games.jsonl").read_text().splitlines()
    games = [json.loads(line) for line in lines]
    assert [game["step"] for game in games] == [0] * 12 + [3] * 12  # 6 secrets
    assert [game["secret"] for game in games[:12]] == [game["secret"] for game in games[12:]]
    pairs = zip(games[:12:2], games[1:12:2], strict=True)  # of one secret
    equal = [one["texts"] == other["texts"] for one, other in pairs]
    assert all(equal) if temperature == 0 else not any(equal), "not as training samples"
    for step, metrics in ((0, metrics_of(folder)[0]), (3, metrics_of(folder)[-1])):
        own = [game for game in games if game["step"] == step]
        mean = np.mean([game["reward"]["total"] for game in own])
        assert metrics["val/reward"] == pytest.approx(mean)
