"""Short games with given guesses, and their summaries."""

from typing import cast

import numpy as np

from wordle_rl.evaluation.summary import summarise
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.words.lists import WordLists

WORDS = frozenset({"crane", "sleep", "crept", "slate", "abbey", "steel", "mound"})


class FakeKnowledge:
    """Every guess tells 1 bit of 2 possible ones and leaves 3 words."""

    words = WordLists(answers=tuple(sorted(WORDS)), allowed=tuple(sorted(WORDS)))
    opener_bits = np.ones(len(WORDS))
    opener_ranks = np.arange(len(WORDS)) + 1

    def candidates(self, state):
        return state

    def outlook(self, guess, mask):
        assert isinstance(mask, State)
        return 1.0, 3.0

    def best_entropy(self, state):
        return 2.0


def played_with(allowed, secret, *guesses, rules=None):
    """A game in which None stands for an answer without a guess."""
    game = Game(secret, allowed, rules or Rules())
    for guess in guesses:
        game.play(guess, text=f"<{guess}>", reason=None if guess else "no guess tag")
    return game


def played(secret, guesses, rules=None):
    return played_with(WORDS, secret, *guesses, rules=rules)


def summary_of(games, rules=None, **fields):
    rules, knowledge = rules or Rules(), cast(Knowledge, FakeKnowledge())
    return summarise(games, knowledge, player="fake", split="test", rules=rules, **fields)
