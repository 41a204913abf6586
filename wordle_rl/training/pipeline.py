"""Plays the steps of a run and learns them, in the order that trainer.lag asks for.

Without a lag each sample is learnt as soon as it is played. With one it waits, while the policy
that has learnt earlier samples plays later ones. Servers can play while the trainer learns.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from wordle_rl.game.rules import Game
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout, games_of
from wordle_rl.training.checkpoint import RunState
from wordle_rl.training.curricula import Curriculum
from wordle_rl.training.example_group import choose_example
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.step import Sample, StepResult, learn_step, sample_step


class Pipeline:
    """The samples of a run, between play and update."""

    def __init__(self, setup: Experiment, step: Step) -> None:
        """step: any of the run; the others have other numbers, and plans of the curriculum."""
        self.waiting: list[Sample] = []  # played and not learnt, the oldest first
        self.between_steps = True  # whether the policy can be saved: no update has begun
        self._setup, self._step, self._policy = setup, step, step.policy

    def advance(self, state: RunState, check: Callable[[], None]) -> tuple[Sample, StepResult]:
        """Learn the sample of the next step, and play what is due before that.

        state: its step is the next one, and is raised. check: raises to stop the run. It is called
        only where stopping loses nothing.
        """
        trainer, next_step = self._setup.trainer, state.step
        end = min(next_step + trainer.lag + 1, trainer.steps)
        numbers = range(next_step + len(self.waiting), end)
        # Scores of rollouts need the trainer's weights, so servers cannot play meanwhile.
        alone = self._policy.served is None or self._setup.recipe.algorithm.needs.scores
        overlap = [] if alone else [number for number in numbers[-1:] if number > next_step]
        for number in numbers[: len(numbers) - len(overlap)]:
            self.waiting.append(self.play(number, next_step, check))
            check()
        sample = self.waiting.pop(0)
        if overlap:
            return sample, self._learn_while_servers_play(overlap[0], sample, state)
        return sample, self.learn(sample, state)

    def _learn_while_servers_play(self, number: int, sample: Sample, state: RunState) -> StepResult:
        """Learn a sample while the servers play step `number` with the weights from before it."""
        assert self._policy.served is not None
        engine = self._policy.served()
        engine.detached = True
        try:
            with ThreadPoolExecutor(1) as thread:
                future = thread.submit(self.play, number, state.step)
                result = self.learn(sample, state)
        finally:
            engine.detached = False
        if future.exception() is None:  # or the next step plays it again, and may fail, too
            self.waiting.append(future.result())
        return result

    def play(self, number: int, learnt: int, check: Callable[[], None] = lambda: None) -> Sample:
        """Play step `number`, counted from 0, as the curriculum plans it now.

        learnt: steps that the policy has learnt.
        """
        plan = self._setup.curriculum.plan()
        recipe = replace(self._setup.recipe, rewards=plan.rewards, replayed=plan.replayed)
        sample = sample_step(replace(self._step, recipe=recipe, number=number, check=check))
        course, switch = observe_step(self._setup.curriculum, sample.rollouts)
        sample, trainer = replace(sample, learnt=learnt), self._setup.trainer
        if trainer.report and trainer.validates(number + 1):
            example = choose_example(recipe, sample.rollouts, sample.advantages)
            sample = replace(sample, example=example)
        return replace(sample, course=course, switch=switch)

    def learn(self, sample: Sample, state: RunState) -> StepResult:
        """Improve the policy on a sample, which an earlier one may have played."""
        self.between_steps, example = False, sample.example
        if example is not None:  # another process has it, too, and does not tell it
            tells = self._policy.processes.rank == 0
            example = example.before_update(self._policy) if tells else None
        result = learn_step(replace(self._step, number=sample.step), sample)
        state.step, self.between_steps = sample.step + 1, True
        return replace(result, example=example)


def observe_step(
    curriculum: Curriculum, rollouts: Sequence[Rollout]
) -> tuple[dict[str, float], str | None]:
    """Show the curriculum the games of a step, once.

    Returns metrics, and a text about the switch to another stage if there was one.
    """
    plan = curriculum.plan()
    group_of = {id(r.whole_game): r.group for r in reversed(rollouts)}  # where each game begins
    groups: dict[int, list[Game]] = {}
    for game in games_of(rollouts):
        groups.setdefault(group_of[id(game)], []).append(game)
    curriculum.observe([*groups.values()])
    stage = curriculum.plan().stage
    metrics = {**curriculum.metrics(), "replayed": float(len(plan.replayed))}
    switch = None if stage == plan.stage else f"{plan.stage} -> {stage}"
    return {f"curriculum/{name}": value for name, value in metrics.items()}, switch
