"""The time of a run, measured on a part of a step before the first one."""

import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.helpers.configs import composed
from tests.helpers.runs import assert_equal_runs, run, settings
from wordle_rl.algorithms.base import Advantages
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.training import forecast, loop
from wordle_rl.training.step import Sample
from wordle_rl.training.validation import HeldOutPlay
from wordle_rl.training.work import plan_work


@pytest.mark.parametrize("stage", ["lora", "ppo", "sft", "two updates with muon"])
def test_measuring_how_long_a_run_takes_changes_nothing_of_it(tmp_path, capsys, monkeypatch, stage):
    given = [*settings(tmp_path, stage), "trainer.steps=2", "trainer.agreement=true"]
    (tmp_path / "runs").mkdir()
    _, plain = run(tmp_path / "runs", *given)
    assert "on this machine" not in capsys.readouterr().out
    monkeypatch.setattr(loop, "SMALL", 0)
    _, timed = run(tmp_path / "runs", *given)
    assert re.search(r"^about \d.* on this machine", capsys.readouterr().out, re.M)
    assert_equal_runs(plain, timed)


def test_a_part_of_the_work_is_timed_and_all_of_it_is_told(monkeypatch):
    """By this clock a game takes 2 s, a step 5 s to play a group and 7 s to learn one."""
    small = "num_generations=8 rollout.groups=20 trainer.steps=3 trainer.validation_games=64"
    setup = build_experiment(resolve(composed("model=micro", *small.split())))
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(forecast.time, "monotonic", lambda: clock.now)

    def play(held_out: Any, secrets: Any, what: str) -> None:
        held_out.spent[:] = 2.0 * len(secrets), len(secrets)

    def sample_step(step: Any) -> Sample:
        clock.now += 5.0 * step.recipe.rollout.groups
        idle = Advantages(per_turn=[np.zeros(4)])
        return Sample(step=0, version=0, weights={}, rollouts=[], advantages=idle)

    def learn_step(step: Any, sample: Sample) -> None:
        if sample.advantages.teaches.all():
            clock.now += 7.0 * step.recipe.rollout.groups

    monkeypatch.setattr(HeldOutPlay, "play", play)
    monkeypatch.setattr(forecast, "sample_step", sample_step)
    monkeypatch.setattr(forecast, "learn_step", learn_step)
    work = plan_work(setup, 1)
    told = forecast.measure_seconds(setup, work, cast(Any, None), cast(Any, None))
    assert told == 3 * 20 * (5.0 + 7.0) + work.held_out.games * 2.0
    assert clock.now < 3 * (5.0 + 7.0)
