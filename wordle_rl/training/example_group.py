"""One group of a step, as the report tells it: its guesses, what each earned and what that changed.

It is the first group of the step that teaches, whatever the number of processes. An algorithm that
imitates compares nothing, so it has none. Telling a group changes no draw and no weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from wordle_rl.algorithms.base import Advantages
from wordle_rl.evaluation.summary import game_record
from wordle_rl.policy.policy import Policy
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.runs.instantiate import option_of
from wordle_rl.training.advantages import parts_of, returns_of
from wordle_rl.training.update import pad


@dataclass(frozen=True, kw_only=True)
class ExampleGroup:
    """A group of a step as it was played and credited, before the update."""

    rollouts: list[Rollout]
    record: dict[str, Any]  # as a line of groups.jsonl, without the probabilities
    before: list[float] = field(default_factory=list)  # of each answer, see answer_logprobs

    def before_update(self, policy: Policy) -> Self:
        """This group, scored by the policy that has not learnt it yet."""
        return replace(self, before=answer_logprobs(policy, self.rollouts))

    def after_update(self, policy: Policy) -> dict[str, Any]:
        """The whole record, scored by the policy that has learnt the step, too."""
        after = answer_logprobs(policy, self.rollouts)
        rows = zip(self.record["guesses"], self.before, after, strict=True)
        return {**self.record, "guesses": [{**g, "before": b, "after": a} for g, b, a in rows]}


def choose_example(
    recipe: Recipe, rollouts: Sequence[Rollout], advantages: Advantages
) -> ExampleGroup | None:
    """The group of a step to tell; None where nothing is compared.

    recipe: with the rewards that the curriculum planned for the step.
    """
    if recipe.algorithm.imitates is not None or recipe.dialogues is not None:
        return None
    indices = np.flatnonzero(advantages.teaches).tolist()
    group_id = rollouts[(indices or [0])[0]].group
    members = [i for i, rollout in enumerate(rollouts) if rollout.group == group_id]
    group, by_turn = [rollouts[i] for i in members], recipe.rollout.credit == "turn"
    returns = [returns_of(rollout, recipe) for rollout in group]
    length = max(map(len, returns))
    # What a guess is compared with: the group's guesses of its turn, or its whole games.
    baselines = [
        [values[turn] for values in returns if len(values) > turn]
        if by_turn
        else [rollout.reward.total for rollout in group]
        for turn in range(length)
    ]
    guesses = [
        guess
        for number, (i, rollout, values) in enumerate(zip(members, group, returns, strict=True), 1)
        for guess in _tell_guesses(number, rollout, recipe, values, advantages.per_turn[i])
    ]
    game = group[0].game
    record = {
        "secret": game.secret,
        "kind": recipe.rollout.kind,
        "turns_used": game.turns[0].state.turn if game.turns else game.state.turn,
        "algorithm": option_of(recipe.algorithm),
        "credit": recipe.rollout.credit,
        "discount": recipe.rollout.discount,
        "temperature": recipe.sampling.temperature,
        "by_letter": advantages.per_token is not None,
        "groups": recipe.rollout.groups,
        "means": [float(np.mean(rewards)) for rewards in baselines],
        "guesses": guesses,
    }
    return ExampleGroup(rollouts=group, record=record)


def _tell_guesses(
    number: int,
    rollout: Rollout,
    recipe: Recipe,
    returns: Sequence[float] | np.ndarray,
    advantages: np.ndarray,
) -> list[dict[str, Any]]:
    """A record of each guess of a rollout. number: of the rollout in its group, from 1."""
    record, parts = game_record(rollout.game), parts_of(rollout, recipe)
    return [
        {
            "game": number,
            "turn": turn,
            "clues": [[clue.guess, clue.marks] for clue in played_turn.state.clues],
            "guess": record["guesses"][turn],
            "marks": record["feedback"][turn],
            "kind": record["kinds"][turn],
            "parts": {name: float(values[turn]) for name, values in parts.items()},
            "reward": float(returns[turn]),
            "advantage": float(advantages[turn]),
            "tokens": int(rollout.answer_lengths[turn]),
        }
        for turn, played_turn in enumerate(rollout.game.turns)
    ]


def answer_logprobs(policy: Policy, rollouts: Sequence[Rollout]) -> list[float]:
    """Natural log of the probability of each answer, game by game, as the policy would draw it."""
    talks = [talk for rollout in rollouts for talk in rollout.talks]
    scores = policy.score(pad(talks, policy.tokenizer.pad_id))
    return [
        float(row[part.start : part.stop].sum(dtype=np.float64))
        for row, talk in zip(scores, talks, strict=True)
        for part in talk.answers.values()
    ]
