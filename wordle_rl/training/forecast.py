"""How long a run takes, measured before its first step on one answer of each of a step's games.

The answers are drawn side by side, as many as in the step, and learnt in vain: no weight changes,
and draws depend on their place in the run alone. So the run stays as it is. Every game is taken to
have all its answers, and every group to teach, so that a run of won games takes a third less.
"""

from dataclasses import replace

import numpy as np

from wordle_rl.policy.policy import Policy
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.settings import Step
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.step import learn_step, sample_step
from wordle_rl.training.work import Workload


def measure_seconds(setup: Experiment, work: Workload, policy: Policy, form: Form) -> float:
    """Seconds of all steps and of all games outside training, if the machine stays as busy.

    policy: a rehearsal, which takes no step.
    """
    recipe, processes = setup.recipe, setup.backend.processes
    groups = recipe.rollout.groups // processes
    part = replace(recipe.rollout, kind="turn", advance="best", groups=groups)
    trial = replace(recipe, rollout=part, teacher=None, agreement=False)
    seconds = _time_step(Step(policy=policy, form=form, recipe=trial, number=0))
    overhead = seconds.pop("optimizer", 0.0)
    drawing = seconds["prefill"] + seconds["decode"]
    learning = sum(seconds.values()) - drawing
    answers = recipe.rules.most_answers
    each_game = drawing * answers * recipe.sampling.beams / groups / part.num_generations
    if recipe.teacher is not None and recipe.teacher.guessable is None:
        drawing = 0.0  # a scripted player takes no time
    if recipe.rollout.kind == "turn":
        answers = 1
    each_step = (drawing + learning) * answers + overhead
    return work.steps * each_step + work.held_out * each_game / processes


def _time_step(step: Step) -> dict[str, float]:
    """Draw an answer in each game of a step and learn it, whether or not it teaches.

    Returns the seconds of each part of this work.
    """
    step.policy.timers.take()
    sample = sample_step(step)
    ones = [np.ones_like(turns) for turns in sample.advantages.per_turn]
    advantages = replace(sample.advantages, per_turn=ones, per_token=None)
    learn_step(step, replace(sample, advantages=advantages))
    return step.policy.timers.take()
