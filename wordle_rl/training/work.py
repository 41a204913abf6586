"""How much a run plays and learns, counted before its first step."""

from dataclasses import dataclass
from typing import NamedTuple

from wordle_rl.rollouts.settings import Recipe
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.validation import choose_report_limit


class Amount(NamedTuple):
    """At most so much, where every game takes all its turns and every answer all its tokens."""

    games: int  # single guesses with rollout=turn
    prompts: int  # each with one answer, of the model or of its teacher
    tokens: int  # of the answers


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a run has to do."""

    steps: int
    step: Amount
    held_out: Amount  # validations, games on watched secrets, and reports
    looks: tuple[tuple[int, int], ...]  # steps between validations or watched games, and games
    reported: int  # games of a report
    validations: int

    @property
    def run(self) -> Amount:
        """The whole run."""
        own = (self.steps * amount for amount in self.step)
        return Amount(*map(sum, zip(own, self.held_out, strict=True)))

    def held_out_after(self, done: int) -> int:
        """The games outside training that are left when so many steps are done."""
        times = [-(-self.steps // every) - done // every for every, _ in self.looks]
        counts = [n * games for n, (_, games) in zip(times, self.looks, strict=True)]
        return self.reported + sum(counts) * (done < self.steps)

    def __str__(self) -> str:
        told = (
            f"the run: {self.steps:,} steps of at most {self.step.games:,} games; "
            f"at most {self.run.games:,} in all, with {self.validations} validations"
        )
        if self.reported:
            told += " and reports"
        return told


def plan_work(setup: Experiment, parameters: int) -> Work:
    """Count the work of a run. parameters: of the model, which decide trainer.report_limit."""
    recipe, trainer = setup.recipe, setup.trainer
    tokens, whole = recipe.sampling.max_tokens, recipe.rules.most_answers
    looks = [(trainer.validate_every, len(setup.validation) * trainer.validation_samples)]
    if trainer.watch_every:
        looks.append((trainer.watch_every, 2 * len(setup.test)))
    reported = setup.test[: choose_report_limit(trainer.report_limit, parameters)]
    reports = trainer.report * len(reported)
    times = [1 + -(-trainer.steps // every) for every, _ in looks]
    held_out = 2 * reports + sum(n * games for n, (_, games) in zip(times, looks, strict=True))
    return Work(
        steps=trainer.steps,
        step=_count_step(recipe),
        held_out=Amount(held_out, held_out * whole, held_out * whole * tokens),
        looks=tuple(looks),
        reported=reports,
        validations=times[0],
    )


def _count_step(recipe: Recipe) -> Amount:
    """The most games, answers and tokens of a step."""
    rollout, whole = recipe.rollout, recipe.rules.most_answers
    played = whole - (recipe.history.least if recipe.history else 0)
    games = rollout.groups * (1 if rollout.kind == "best_of" else rollout.num_generations)
    answers = rollout.groups * rollout.num_generations * (played if rollout.finishes else 1)
    return Amount(games, answers, answers * recipe.sampling.max_tokens)
