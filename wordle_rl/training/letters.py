"""Credit letter by letter: a guess is judged while it is spelled.

A letter spoils a guess if it is the first after which no allowed word fits all clues. Every letter
up to that one has a reward: 0 if it spoils the guess, else 1. Its advantage is this reward less the
mean of the same letter's rewards in the group's guesses of the same turn. So a non-word such as
CHARP counts against its P alone, and C, H, A and R count as much as they do in CHART. The letters
after the spoiling one have no advantage.

This is process supervision as in section 4.1.3 of DeepSeekMath (arXiv 2402.03300), with two
differences: the judge is exact in place of a learnt model, and a letter is not credited for what
comes after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from wordle_rl.algorithms.base import Floats
from wordle_rl.policy.engine import Tokenizer
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.rollouts.talk import Rollout, Talk
from wordle_rl.words.lists import WORD_LENGTH


def letter_advantages(
    rollouts: Sequence[Rollout], recipe: Recipe, tokenizer: Tokenizer
) -> list[list[Floats]]:
    """[R] of [K] of [tokens]: rollout.letter_weight x the advantages of the letters in each token.

    Other tokens have 0, and so have answers without a guess.
    """
    assert recipe.knowledge is not None
    rewards: dict[tuple[int, int, int], list[float]] = defaultdict(list)  # by group, turn, letter
    judged: list[tuple[Floats, tuple[int, int], Floats, list[int]]] = []
    found: list[list[Floats]] = []
    for rollout in rollouts:
        found.append([])
        for talk, (number, part) in _answers(rollout):
            ids, played = talk.ids[part.start : part.stop], rollout.game.turns[number]
            found[-1].append(np.zeros(len(ids)))
            if played.guess is None or not talk.trained[part.start]:
                continue
            kept = judge_letters(recipe.knowledge.spoiling_letter(played.guess, played.state))
            for letter, reward in enumerate(kept.tolist()):
                rewards[rollout.group, number, letter].append(reward)
            places = locate_letters(ids, played.guess, tokenizer)
            judged.append((found[-1][-1], (rollout.group, number), kept, places))
    means = {key: float(np.mean(values)) for key, values in rewards.items()}
    for tokens, key, kept, places in judged:
        for letter, (reward, place) in enumerate(zip(kept.tolist(), places, strict=False)):
            tokens[place] += recipe.rollout.letter_weight * (reward - means[*key, letter])
    return found


def _answers(rollout: Rollout) -> Iterator[tuple[Talk, tuple[int, range]]]:
    """The turns of a rollout, each with its conversation and where its answer is in it."""
    return ((talk, answer) for talk in rollout.talks for answer in talk.answers.items())


def judge_letters(spoiling: int | None) -> Floats:
    """[letters up to the spoiling one] their rewards; all have 1 if none spoils the guess."""
    return np.ones(WORD_LENGTH) if spoiling is None else np.append(np.ones(spoiling), 0.0)


def locate_letters(ids: list[int], guess: str, tokenizer: Tokenizer) -> list[int]:
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
