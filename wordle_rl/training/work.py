"""How much a run plays and learns, counted before its first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wordle_rl.training.experiment import Experiment
from wordle_rl.training.validation import choose_report_limit


class Amount(NamedTuple):
    """At most so much, where every game takes all its turns and every answer all its tokens."""

    games: int  # single guesses with rollout=turn
    prompts: int  # each with one answer, of the model or of its teacher
    tokens: int  # of the answers

    def __str__(self) -> str:
        return f"{self.games:,} games, {self.prompts:,} prompts, {self.tokens:,} answer tokens"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a run has to do."""

    steps: int
    step: Amount
    held_out: Amount  # validations, games on watched secrets, and reports
    at_start: int  # games of these before the first step
    validations: int

    @property
    def run(self) -> Amount:
        """The whole run."""
        own = (self.steps * amount for amount in self.step)
        return Amount(*map(sum, zip(own, self.held_out, strict=True)))

    @property
    def held_out_share(self) -> float:
        """How many times as long as at the start all validations and reports take."""
        return self.held_out.games / self.at_start

    def __str__(self) -> str:
        return (
            f"a step takes at most {self.step}\nthe run: {self.steps:,} steps, "
            f"{self.validations} validations and reports: at most {self.run}"
        )


def plan_work(setup: Experiment, parameters: int) -> Work:
    """Count the work of a run. parameters: of the model, which decide trainer.report_limit."""
    recipe, trainer = setup.recipe, setup.trainer
    rules, rollout, tokens = recipe.rules, recipe.rollout, recipe.sampling.max_tokens
    again = rules.max_retries if "retry" in (rules.invalid, rules.unparsable) else 0
    whole, given = rules.max_turns + again, recipe.history.least if recipe.history else 0
    games = rollout.groups * (1 if rollout.kind == "best_of" else rollout.num_generations)
    turns = whole - given if rollout.finishes else 1
    prompts = rollout.groups * rollout.num_generations * turns
    validations = 1 + -(-trainer.steps // trainer.validate_every)
    looks = 1 + -(-trainer.steps // trainer.watch_every) if trainer.watch_every else 0
    reported = setup.test[: choose_report_limit(trainer.report_limit, parameters)]
    parts = (  # how often, and how many games
        (validations, len(setup.validation) * trainer.validation_samples),
        (looks, 2 * len(setup.test)),
        (2 * trainer.report, len(reported)),
    )
    held_out = sum(times * count for times, count in parts)
    return Work(
        steps=trainer.steps,
        step=Amount(games, prompts, prompts * tokens),
        held_out=Amount(held_out, held_out * whole, held_out * whole * tokens),
        at_start=sum(count for times, count in parts if times),
        validations=validations,
    )
