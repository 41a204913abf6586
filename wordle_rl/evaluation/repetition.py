"""Which word a player guesses most, and a warning about one that it says whatever the clues are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wordle_rl.game.rules import Game

_MOST = 0.25  # share of the turns after the first above which a word is warned about
_FEWEST_TURNS = 20  # after the first; below that, one word in four is often chance


def later_guesses(games: Sequence[Game]) -> dict[str, Any]:
    """The most common guess after the first turn, as entries of a summary.

    An opener may be the same in every game, so first turns do not count. later_turns: all answers
    after the first turn. later_guess is None if none of them could be read.
    """
    turns = [turn for game in games for turn in game.turns if turn.state.turn > 0]
    guess, count = most_common_guess(turn.guess for turn in turns)
    return {"later_turns": len(turns), "later_guess": guess, "later_guess_count": count}


def most_common_guess(guesses: Iterable[str | None]) -> tuple[str | None, int]:
    """The most common guess and its count; (None, 0) if none of the answers could be read."""
    common = Counter(guess for guess in guesses if guess is not None).most_common(1)
    return common[0] if common else (None, 0)


def describe_common_guess(summary: Mapping[str, Any]) -> list[str]:
    """One line about the most common guess; none without guesses, or of earlier versions."""
    guesses = summary["most_common_guesses"]
    if not guesses or "turns" not in summary:
        return []
    word, count = guesses[0]
    return [f"most common guess: {word}, {count} of {summary['turns']} turns"]


def warn_of_repetition(name: str, entries: Mapping[str, Any]) -> list[str]:
    """One line if a word takes more than a quarter of the turns after the first.

    entries: from later_guesses(); without them, as in earlier versions, there is no line.
    """
    turns, count = entries.get("later_turns", 0), entries.get("later_guess_count", 0)
    if turns < _FEWEST_TURNS or count <= _MOST * turns:
        return []
    word = entries["later_guess"]
    return [f"WARNING: {name} guesses {word} in {count} of {turns} turns after the first"]
