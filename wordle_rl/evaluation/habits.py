"""What a player guesses whatever the clues are, and what it found out about the word lists.

The original answers hold no word that counts as a plural here, but every fourth allowed word is
one. So a model that wins by reinforcement should stop guessing them, although nobody tells it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game

_NOT_PLURAL = ("ss", "us", "is", "os")  # glass, virus, basis, chaos
_MOST = 0.25  # share of the turns after the first above which a word is warned about
_FEWEST_TURNS = 20  # after the first; below that, one word in four is often chance


def is_plural(word: str) -> bool:
    """Whether a word ends in s, but not in ss, us, is or os: "reads" counts, and "autos" does not.

    It holds for none of the 2,315 original answers and for 3,403 of the 12,972 allowed words.
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
        "opener_bits": _mean(knowledge.opener_bits[openers]),
        "opener_rank": _mean(knowledge.opener_ranks[openers]),
    }


def _mean(values: Sequence[float] | np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def later_guesses(games: Sequence[Game]) -> dict[str, Any]:
    """The most common guess after the first turn, as entries of a summary.

    later_turns: all answers after the first turn. later_guess is None if none could be read.
    """
    turns = [turn for game in games for turn in game.turns if turn.state.turn > 0]
    counts = Counter(turn.guess for turn in turns if turn.guess is not None)
    guess, count = next(iter(counts.most_common(1)), (None, 0))
    return {"later_turns": len(turns), "later_guess": guess, "later_guess_count": count}


def warn_of_context(name: str, cut: int, games: int) -> list[str]:
    """One line if the model's context cut off some of the games."""
    text = f"{name} ran out of model.max_context in {cut} of {games} games, which are lost"
    return [f"WARNING: {text}"] if cut else []


def warn_of_repetition(name: str, entries: Mapping[str, Any]) -> list[str]:
    """One line if a word takes more than a quarter of the turns after the first.

    entries: from later_guesses().
    """
    turns, count = entries["later_turns"], entries["later_guess_count"]
    if turns < _FEWEST_TURNS or count <= _MOST * turns:
        return []
    word = entries["later_guess"]
    return [f"WARNING: {name} guesses {word} in {count} of {turns} turns after the first"]
