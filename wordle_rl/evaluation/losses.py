"""Which secrets a player loses, and what these secrets and games have in common.

A family is a set of words that share four letters in their places, such as CASTE, HASTE and PASTE.
Within it a guess excludes little more than itself, so a large family can use up the turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wordle_rl.evaluation.intervals import win_interval
from wordle_rl.game.knowledge import Knowledge, broken_clues, letter_facts
from wordle_rl.game.rules import Game, TurnKind
from wordle_rl.words.lists import WORD_LENGTH

FREE = "_"  # the place at which a family's words differ


class Families:
    """The largest family of each word in a list."""

    def __init__(self, words: Sequence[str]) -> None:
        self._members: defaultdict[str, list[str]] = defaultdict(list)
        for word in words:
            for pattern in _patterns(word):
                self._members[pattern].append(word)

    def largest(self, word: str) -> tuple[str, tuple[str, ...]]:
        """Its pattern, such as _aste, and its members in the order of the list.

        Of equally large ones it is the one that differs earliest in the word.
        """
        pattern = max(_patterns(word), key=lambda one: len(self._members[one]))
        return pattern, tuple(self._members[pattern])


def _patterns(word: str) -> list[str]:
    return [word[:place] + FREE + word[place + 1 :] for place in range(len(word))]


def loss_rates(games: Sequence[Game], trait: Callable[[str], str]) -> dict[str, dict[str, Any]]:
    """Trait of the secret -> its secrets and games, and the share lost with a 95 % interval.

    The interval takes all games on one secret as one cluster.
    """
    found: defaultdict[str, list[Game]] = defaultdict(list)
    for game in games:
        found[trait(game.secret)].append(game)
    rates = {}
    for name, some in sorted(found.items()):
        secrets, lost = [game.secret for game in some], [float(not game.won) for game in some]
        low, high = win_interval(lost, secrets)
        rates[name] = {
            "secrets": len(set(secrets)), "games": len(some), "lost": sum(lost) / len(some),
            "low": low, "high": high,
        }  # fmt: skip
    return rates


@dataclass(frozen=True, kw_only=True, slots=True)
class LostGame:
    """How a lost game ended."""

    one_missing: bool  # four letters were in place before the last guess
    left: int  # allowed words that fitted all clues before it
    ignored: bool  # some guess ignored a clue
    wasted: bool  # some turn had no feedback: a non-word, or no guess at all


def lost_games(games: Sequence[Game], knowledge: Knowledge) -> list[LostGame]:
    """The lost games among some games, in their order."""
    return [_ending(game, knowledge) for game in games if not game.won and game.turns]


def _ending(game: Game, knowledge: Knowledge) -> LostGame:
    last = game.turns[-1].state
    accepted = [turn for turn in game.turns if turn.kind is TurnKind.ACCEPTED]
    return LostGame(
        one_missing=len(letter_facts(last.clues).placed) == WORD_LENGTH - 1,
        left=int(knowledge.consistent_allowed(last).sum()),
        ignored=any(
            broken_clues(turn.guess or "", letter_facts(turn.state.clues)).total
            for turn in accepted
        ),
        wasted=len(accepted) < len(game.turns),
    )


def finishing(games: Sequence[Game], knowledge: Knowledge) -> dict[str, float | None]:
    """How often a player names the secret when a single allowed word fits all clues.

    turns: how many such turns there were. named: share of them that guessed the word, None without
    any. A word that is named in the end counts once for every turn that missed it.
    """
    named = []
    for game in games:
        for turn in game.turns:
            fitting = knowledge.consistent_allowed(turn.state)
            if fitting.sum() == 1:
                named.append(turn.guess == knowledge.words.allowed[int(fitting.argmax())])
    return {"turns": len(named), "named": sum(named) / len(named) if named else None}


def lost_by_all(runs: Sequence[Sequence[Game]]) -> list[str]:
    """Secrets without a won game in any run, in alphabetical order."""
    played = {game.secret for games in runs for game in games}
    return sorted(played - {game.secret for games in runs for game in games if game.won})


def expected_in_common(rates: Sequence[float], secrets: int) -> float:
    """How many secrets all runs would lose if each lost its share by chance alone."""
    chance = 1.0
    for rate in rates:
        chance *= rate
    return chance * secrets


def win_shares(games: Sequence[Game]) -> Mapping[str, float]:
    """Secret -> share of its games that were won."""
    results: defaultdict[str, list[bool]] = defaultdict(list)
    for game in games:
        results[game.secret].append(game.won)
    return {secret: sum(won) / len(won) for secret, won in results.items()}
