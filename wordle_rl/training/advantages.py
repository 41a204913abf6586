"""Scores the rollouts of a step: rewards, penalties for long answers, and advantages.

Advantages are computed over the rollouts of all processes.

letter_advantages credits letter by letter: a guess is judged while it is spelled. A letter spoils a
guess if it is the first after which no word of a list is left. Every letter up to that one has a
reward: 0 if it spoils the guess, else 1. Its advantage is this reward less the mean of the same
letter's rewards in the group's guesses of the same turn. So CHARP counts against its P alone, and
the letters after the spoiling one have no advantage. An answer that a grammar forced as a whole is
not among the group's guesses. This is process supervision as in section
4.1.3 of DeepSeekMath (arXiv 2402.03300), with an exact judge in place of a learnt model, and
without credit of a letter for what comes after it.

There are two judges. For rollout.letter_weight the list has the allowed words that fit all clues,
or all allowed words while more than rollout.letter_from fit. For rollout.word_letter_weight it has
all allowed words, so a guess that left the clues early is still told where it stops being a word.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, Array, StepOutcomes
from wordle_rl.game.rules import GameStatus
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import ParseFailure
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.settings import Recipe, Step
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.training.update import pad
from wordle_rl.words.lists import WORD_LENGTH


def reward_rollouts(step: Step, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Give each rollout of this process its reward and, if needed, its scores."""
    if step.recipe.algorithm.needs.allowed:
        for talk in (talk for rollout in rollouts for talk in rollout.talks):
            talk.train_forced()
    if step.recipe.algorithm.needs.scores:
        rollouts = _score_talks(step, rollouts)
    with step.policy.timers("reward"):
        return [replace(rollout, reward=_reward(step.recipe, rollout)) for rollout in rollouts]


def _reward(recipe: Recipe, rollout: Rollout) -> GameReward:
    reward = recipe.rewards.reward(rollout.game)
    divergence = None
    if rollout.scores is not None and recipe.algorithm.needs.reference:
        divergence = np.zeros(len(rollout.answer_lengths))
        for talk, score in zip(rollout.talks, rollout.scores, strict=True):
            gap = score["old_logprobs"].astype(float) - score["ref_logprobs"]
            np.add.at(divergence, talk.turns, gap)
    charges = recipe.algorithm.penalties(
        rollout.answer_lengths, recipe.sampling.max_tokens, divergence
    )
    for name, shares in charges.items():
        reward = reward.charged(name, shares)
    return reward


def _score_talks(step: Step, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollouts with the trainer's scores of their conversations."""
    policy, algorithm = step.policy, step.recipe.algorithm
    batch = pad([t for rollout in rollouts for t in rollout.talks], step.form.chat.tokenizer.pad_id)
    arrays = {"old_logprobs": policy.score(batch)}
    if algorithm.needs.reference:
        arrays["ref_logprobs"] = policy.score(batch, reference=True)
    if algorithm.needs.values:
        arrays["old_values"] = policy.values(batch)
    scores = iter(
        {name: values[row, :end] for name, values in arrays.items()}
        for row, end in enumerate(batch.lengths)
    )
    return [replace(rollout, scores=[next(scores) for _ in rollout.talks]) for rollout in rollouts]


def credit_rollouts(step: Step, rollouts: Sequence[Rollout]) -> Advantages:
    """The algorithm's advantages, and those of letters beside them if letters are judged."""
    settings, advantages = step.recipe.rollout, step_advantages(rollouts, step.recipe)
    if not (settings.letter_weight or settings.word_letter_weight):
        return advantages
    tokenizer = step.form.chat.tokenizer
    return replace(advantages, per_token=letter_advantages(rollouts, step.recipe, tokenizer))


def step_advantages(rollouts: Sequence[Rollout], recipe: Recipe) -> Advantages:
    """The algorithm's advantages for a step's rollouts, which come from all processes."""
    by_turn, needs = recipe.rollout.credit == "turn", recipe.algorithm.needs
    discount = recipe.rollout.discount if by_turn else 1.0
    returns = [returns_of(rollout, recipe) for rollout in rollouts]
    return recipe.algorithm.advantages(
        StepOutcomes(
            groups=np.array([rollout.group for rollout in rollouts]),
            returns=returns,
            won=np.array([rollout.game.status is GameStatus.WON for rollout in rollouts]),
            complete=[
                np.array([turn.reason != ParseFailure.TRUNCATED for turn in rollout.game.turns])
                for rollout in rollouts
            ],
            values=[
                _turn_values(rollout, values, discount)
                for rollout, values in zip(rollouts, returns, strict=True)
            ]
            if needs.values
            else None,
            by_turn=by_turn,
            discount=discount,
            states=[[turn.state for turn in rollout.game.turns] for rollout in rollouts],
            parts=[parts_of(rollout, recipe) for rollout in rollouts] if needs.parts else [],
            weights=recipe.rewards.weights,
        )
    )


def returns_of(rollout: Rollout, recipe: Recipe) -> Array:
    """[K] reward from each turn on. With credit=game every turn has the whole game's reward."""
    game, reward = rollout.game, rollout.reward
    if recipe.rollout.credit == "turn":
        return np.array(recipe.rewards.to_go(game, reward, recipe.rollout.discount))
    return np.full(len(game.turns), reward.total)


def parts_of(rollout: Rollout, recipe: Recipe) -> dict[str, Array]:
    """[K] by name: what each component and each correction of the reward adds to the returns."""
    game, reward = rollout.game, rollout.reward
    if recipe.rollout.credit == "turn":
        parts = recipe.rewards.by_part(game, reward, recipe.rollout.discount)
        return {name: np.array(part) for name, part in parts.items()}
    return {name: np.full(len(game.turns), total) for name, total in reward.components.items()}


def _turn_values(rollout: Rollout, returns: Array, discount: float) -> Array:
    """[K] the value head's prediction before the first token of each answer that was drawn.

    An answer that a grammar forced as a whole has no prediction. Its turn is worth what it earned
    and the value of the next one, as if it belonged to the rules.
    """
    assert rollout.scores is not None
    values = np.append(np.full(len(returns), np.nan), 0.0)
    for talk, score in zip(rollout.talks, rollout.scores, strict=True):
        for turn, part in talk.answers.items():
            if positions := [position for position in part if talk.drawn[position]]:
                values[turn] = score["old_values"][positions[0]]
    rewards = returns - discount * np.append(returns[1:], 0.0)
    for turn in np.flatnonzero(np.isnan(values))[::-1]:
        values[turn] = rewards[turn] + discount * values[turn + 1]
    return values[:-1]


def groups_without_spread(rollouts: Sequence[Rollout], advantages: Advantages) -> NDArray[np.int64]:
    """Numbers of the groups that teach nothing: every advantage at every turn is exactly 0."""
    groups = np.array([rollout.group for rollout in rollouts])
    return np.setdiff1d(groups, groups[advantages.teaches])


def share_of_idle_turns(rollouts: Sequence[Rollout], advantages: Advantages) -> float:
    """Share of the sets of one group at one turn in which every advantage is exactly 0."""
    teaches: dict[tuple[int, int], bool] = {}
    for rollout, values in zip(rollouts, advantages.per_turn, strict=True):
        for turn, value in enumerate(values.tolist()):
            key = rollout.group, turn
            teaches[key] = teaches.get(key, False) or value != 0.0
    return 1.0 - sum(teaches.values()) / max(len(teaches), 1)


# -- credit by letter -----------------------------------------------------------------------------


def letter_advantages(
    rollouts: Sequence[Rollout], recipe: Recipe, tokenizer: HFTokenizer
) -> list[list[Array]]:
    """[R] of [K] of [tokens]: weighted advantages of the letters in each token, of both judges."""
    settings = recipe.rollout
    judges = [(settings.letter_weight, settings.letter_from), (settings.word_letter_weight, 0)]
    advantages = [
        [np.zeros(len(part)) for talk in rollout.talks for part in talk.answers.values()]
        for rollout in rollouts
    ]
    for weight, letter_from in judges:
        if weight:
            _add_letters(advantages, weight, letter_from, rollouts, recipe, tokenizer)
    return advantages


def _add_letters(
    advantages: list[list[Array]],
    weight: float,
    letter_from: int | None,
    rollouts: Sequence[Rollout],
    recipe: Recipe,
    tokenizer: HFTokenizer,
) -> None:
    """Add weight x the advantages by one judge to the tokens of each answer, [R] of [K]."""
    assert recipe.knowledge is not None
    rewards: dict[tuple[int, int, int], list[float]] = defaultdict(list)  # by group, turn, letter
    verdicts: list[tuple[Array, tuple[int, int], list[float], list[int]]] = []
    for tokens_of, rollout in zip(advantages, rollouts, strict=True):
        answers = ((talk, *answer) for talk in rollout.talks for answer in talk.answers.items())
        for tokens, (talk, number, part) in zip(tokens_of, answers, strict=True):
            ids, turn = talk.ids[part.start : part.stop], rollout.game.turns[number]
            if turn.guess is None or not any(talk.drawn[part.start : part.stop]):
                continue
            spoiler = recipe.knowledge.spoiling_letter(turn.guess, turn.state, letter_from)
            marks = [1.0] * WORD_LENGTH if spoiler is None else [1.0] * spoiler + [0.0]
            for letter, reward in enumerate(marks):
                rewards[rollout.group, number, letter].append(reward)
            indices = locate_letters(ids, turn.guess, tokenizer)
            verdicts.append((tokens, (rollout.group, number), marks, indices))
    means = {key: float(np.mean(values)) for key, values in rewards.items()}
    for tokens, key, marks, indices in verdicts:
        for letter, (reward, index) in enumerate(zip(marks, indices, strict=False)):
            tokens[index] += weight * (reward - means[*key, letter])


def locate_letters(ids: list[int], guess: str, tokenizer: HFTokenizer) -> list[int]:
    """For each letter of a guess the token of the answer that it is in.

    The guess is the last place of the answer's text with these letters, spaces between them or not.
    Empty where the text does not show them.
    """
    letters = r"\s*".join(f"({letter})" for letter in guess)
    matches = list(re.finditer(letters, tokenizer.decode(ids), re.IGNORECASE | re.ASCII))
    if not matches:
        return []
    ends = [len(tokenizer.decode(ids[: i + 1])) for i in range(len(ids))]
    return [int(np.searchsorted(ends, matches[-1].end(i + 1))) for i in range(len(guess))]
