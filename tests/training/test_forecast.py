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
from wordle_rl.training.work import plan_work


@pytest.mark.parametrize("stage", ["lora", "ppo", "sft", "two updates with muon"])
def test_measuring_how_long_a_run_takes_changes_nothing_of_it(tmp_path, capsys, monkeypatch, stage):
    overrides = [*settings(tmp_path, stage), "trainer.steps=2", "trainer.agreement=true"]
    (tmp_path / "runs").mkdir()
    _, plain_run = run(tmp_path / "runs", *overrides)
    assert "on this machine" not in capsys.readouterr().out
    monkeypatch.setattr(loop, "SMALL", 0)
    _, timed_run = run(tmp_path / "runs", *overrides)
    assert re.search(r"^about \d.* on this machine", capsys.readouterr().out, re.M)
    assert_equal_runs(plain_run, timed_run)


@pytest.mark.parametrize(
    ("given", "step"),
    [
        ("rollout=game", 6 * (40 + 60) + 3),
        ("rollout=best_of", 6 * (40 + 60) + 3),
        ("rollout=turn trainer.report=false", 40 + 60 + 3),
        ("algorithm=distill", 6 * 60 + 3),  # a scripted player takes no time
    ],
)
def test_an_answer_of_each_game_is_timed_and_all_answers_are_told(given, step, monkeypatch):
    """A step's 160 answers take 40 s, of which 30 s decode, and 60 s to learn, and 3 s for all."""
    options = "num_generations=8 rollout.groups=20 trainer.steps=5 trainer.watch_every=0"
    setup = build_experiment(resolve(composed("model=micro", *options.split(), *given.split())))
    seconds: dict[str, float] = {}
    rehearsal: Any = SimpleNamespace(timers=SimpleNamespace(take=lambda: seconds))

    def sample_step(step: Any) -> Sample:
        assert step.recipe.rollout.kind == "turn" and step.recipe.rollout.groups == 20
        advantages = Advantages(per_turn=[np.zeros(1)])
        return Sample(step=0, learnt=0, rollouts=[], advantages=advantages)

    def learn_step(step: Any, sample: Sample) -> None:
        assert sample.advantages.teaches.all()
        seconds.update(prefill=10.0, decode=30.0, forward=20.0, backward=40.0, optimizer=3.0)

    monkeypatch.setattr(forecast, "sample_step", sample_step)
    monkeypatch.setattr(forecast, "learn_step", learn_step)
    work = plan_work(setup, 1)
    estimate = forecast.measure_seconds(setup, work, rehearsal, cast(Any, None))
    assert estimate == pytest.approx(5 * step + work.held_out * 6 * 40 / 160)
