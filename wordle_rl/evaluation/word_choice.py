"""Which kinds of words a player guesses, beside what a random fitting word would be.

The comparison says what a player prefers: after some clues most fitting words may be plurals, so a
share of plurals alone says little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wordle_rl.evaluation.discovery import is_plural
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game


def repeats_letter(word: str) -> bool:
    """Whether a word has a letter twice or more."""
    return len(set(word)) < len(word)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Shares of some words, in 0..1."""

    plurals: float  # of wordle_rl.evaluation.discovery.is_plural
    repeats: float  # a letter twice or more
    answers: float  # in the list of answers


@dataclass(frozen=True, kw_only=True, slots=True)
class WordChoice:
    """Guesses of one kind of turn, and the fitting words among which they were."""

    guesses: int
    made: Shares
    fitting: Shares  # the mean over turns of the shares among all allowed words that fit


def word_choice(games: Sequence[Game], knowledge: Knowledge, *, openers: bool) -> WordChoice | None:
    """The choice of words of legal guesses; None if there are none.

    openers: whether of guesses without a clue before them, or of all others.
    """
    words = knowledge.words
    traits = np.array(
        [(is_plural(w), repeats_letter(w), w in words.answer_index) for w in words.allowed], float
    )
    turns = [
        turn
        for game in games
        for turn in game.turns
        if turn.guess in words.guess_index and (not turn.state.clues) == openers
    ]
    if not turns:
        return None
    made = traits[[words.guess_index[turn.guess or ""] for turn in turns]].mean(axis=0)
    masks = (knowledge.consistent_allowed(turn.state) for turn in turns)
    # With feedback that contradicts itself, no word would fit.
    fitting = [traits[mask].mean(axis=0) for mask in masks if mask.any()]
    return WordChoice(
        guesses=len(turns), made=_shares(made), fitting=_shares(np.mean(fitting, axis=0))
    )


def _shares(values: np.ndarray) -> Shares:
    plurals, repeats, answers = values.tolist()
    return Shares(plurals=plurals, repeats=repeats, answers=answers)


def opener_bits(games: Sequence[Game], knowledge: Knowledge) -> list[float]:
    """Expected bits of each game's first legal guess without a clue before it."""
    index = knowledge.words.guess_index
    found = (
        next((t.guess for t in g.turns if not t.state.clues and t.guess in index), None)
        for g in games
    )
    return [float(knowledge.opener_bits[index[guess]]) for guess in found if guess is not None]


def describe_openers(games: Sequence[Game], knowledge: Knowledge) -> dict[str, Any]:
    """The most common opener with its share, bits and rank, and the mean bits of all openers.

    Empty without a legal guess on an empty board. The rank is among all allowed words, 1 is best.
    """
    index = knowledge.words.guess_index
    made = [t.guess for g in games for t in g.turns if not t.state.clues and t.guess in index]
    if not made:
        return {}
    (word, count), *_ = Counter(made).most_common(1)
    return {
        "word": word,
        "share": count / len(made),
        "bits": float(knowledge.opener_bits[index[word or ""]]),
        "rank": int(knowledge.opener_ranks[index[word or ""]]),
        "mean_bits": float(np.mean([knowledge.opener_bits[index[w or ""]] for w in made])),
        "different": len(set(made)),
    }


def words_left(
    games: Sequence[Game], knowledge: Knowledge, max_turns: int
) -> dict[str, dict[str, float]]:
    """Turn -> what all games had reached after it, finished games included.

    won: share of games won by then. left: mean number of answers that still fit, 1 for a won game.
    Games that began with clues do not count.
    """
    begun = [game for game in games if game.turns and game.turns[0].state.turn == 0]
    found = {}
    for turn in range(1, max_turns + 1):
        left = [_left_after(game, knowledge, turn) for game in begun]
        won = [game.won and game.state.turn <= turn for game in begun]
        if begun:
            found[str(turn)] = {"won": float(np.mean(won)), "left": float(np.mean(left))}
    return found


def _left_after(game: Game, knowledge: Knowledge, turn: int) -> int:
    states = [*(played.state for played in game.turns), game.state]
    last = [state for state in states if state.turn <= turn][-1]
    return int(knowledge.candidates(last).sum())
