"""The progress line."""

from __future__ import annotations

import pytest

from wordle_rl import progress
from wordle_rl.progress import Progress


def test_a_line_tells_the_step_percentages_and_the_time_left(monkeypatch: pytest.MonkeyPatch):
    clock = iter([100.0, 106.0])  # two steps took six seconds, seven are left
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    bar = Progress(first=10, end=19)
    bar.update({"reward/mean": 1.5, "train/win_rate": 0.25, "lr": 1e-4})
    assert bar.line(11) == "step 12 reward=1.5 win%=25 left=0.3min"


def test_a_value_that_a_step_does_not_have_stays_as_it_was():
    bar = Progress(first=0, end=2)
    bar.update({"val/win_rate": 0.5, "loss": 2.0})
    assert bar.update({"loss": 1.0}) == {"val%": 50.0, "loss": 1.0}
