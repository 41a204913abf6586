"""What play shows of the word lists, although nobody tells a model: answers, plurals, openers.

The original answers hold no word that counts as a plural here, but every fourth allowed word is
one. So a model that wins by reinforcement should stop guessing them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game

_NOT_PLURAL = ("ss", "us", "is", "os")  # glass, virus, basis, chaos


def is_plural(word: str) -> bool:
    """Whether a word ends in s, but not in ss, us, is or os.

    This needs no dictionary. Verbs such as "reads" count, and plurals such as "autos" do not. It
    holds for none of the 2,315 original answers and for 3,403 of the 12,972 allowed words.
    """
    return word.endswith("s") and not word.endswith(_NOT_PLURAL)


def discoveries(games: Sequence[Game], knowledge: Knowledge) -> dict[str, float | None]:
    """Means over legal guesses and openers; None where there are none.

    - plurals, answer_guesses: shares of the guesses in the list of allowed words.
    - opener_bits: entropy of the opener over the answers.
    - opener_rank: its rank by these bits among all allowed words. 1 is the best.

    An opener is a legal guess that had no clue before it.
    """
    words = knowledge.words
    turns = [turn for game in games for turn in game.turns if turn.guess in words.guess_index]
    guesses = [turn.guess or "" for turn in turns]
    openers = [words.guess_index[turn.guess or ""] for turn in turns if not turn.state.clues]
    return {
        "plurals": _mean([is_plural(guess) for guess in guesses]),
        "answer_guesses": _mean([guess in words.answer_index for guess in guesses]),
        "opener_bits": _mean(knowledge.opener_bits[openers]) if openers else None,
        "opener_rank": _mean(knowledge.opener_ranks[openers]) if openers else None,
    }


def _mean(values: Sequence[float] | np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None
