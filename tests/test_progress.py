"""The progress line."""

from __future__ import annotations

import pytest

from wordle_rl import progress
from wordle_rl.progress import Lines, shown


def test_a_line_tells_the_step_its_values_and_the_minutes_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    clock = iter([100.0, 103.0, 106.0])  # two steps took six seconds, seven are left
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    lines = Lines(9)
    lines.step(11, {"loss": 0.25})
    lines.step(12, shown({"reward/mean": 1.5, "train/win_rate": 0.25, "lr": 1e-4}))
    assert capsys.readouterr().out.splitlines() == [
        "step 11 loss=0.25 left=0.4min",
        "step 12 reward=1.5 win%=25 left=0.3min",
    ]
