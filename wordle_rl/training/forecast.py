"""How long a run takes: measured before its first step, on a few games and a part of a step.

Drawn answers depend on their place in the run alone and nothing is learnt, so the run stays as it
is. What changes later is not foreseen: games become shorter as a model learns, and groups whose
games are equal teach nothing.
"""

import math
import time
from dataclasses import replace

import numpy as np

from wordle_rl.policy.policy import Policy
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.play import Portions
from wordle_rl.rollouts.settings import Step
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.step import learn_step, sample_step
from wordle_rl.training.validation import HeldOutPlay
from wordle_rl.training.work import Work

_ENOUGH = 16  # games at once: more are hardly faster, each for itself


def measure_seconds(setup: Experiment, work: Work, policy: Policy, form: Form) -> float:
    """Seconds of all steps and of all games outside training, if the machine stays as busy.

    policy: a rehearsal, which takes no step. Every group counts as one that teaches.
    """
    few = HeldOutPlay(policy=policy, form=form, setup=setup, portions=Portions())
    few.play(setup.validation[:_ENOUGH], "timing a few games")
    spent, games = few.spent
    rollout, processes = setup.recipe.rollout, setup.backend.processes
    groups = min(rollout.groups, math.ceil(_ENOUGH / rollout.num_generations))
    recipe = replace(setup.recipe, rollout=replace(rollout, groups=groups), agreement=False)
    step = Step(policy=policy, form=form, recipe=recipe, number=0)
    begin = time.monotonic()
    sample = sample_step(step)
    ones = [np.ones_like(turns) for turns in sample.advantages.per_turn]
    advantages = replace(sample.advantages, per_turn=ones, per_token=None)
    learn_step(step, replace(sample, advantages=advantages))
    seconds = (time.monotonic() - begin) * rollout.groups / groups
    return (work.steps * seconds + work.held_out.games * spent / games) / processes
