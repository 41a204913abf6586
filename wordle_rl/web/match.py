"""A person and a player on the same secret, and a shelf for the games of a page."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from wordle_rl.game.rules import Game, GameStatus, PlayedTurn, breaks_hard_mode
from wordle_rl.rollouts.opponent import Opponent, Stop, WatchedGame

Item = TypeVar("Item")


class NotAllowed(ValueError):
    """A person's guess is against the rules. It uses no turn."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """Both games on one secret. The player's is finished, and shown turn by turn."""

    opponent: Opponent
    mine: Game
    theirs: WatchedGame

    @property
    def over(self) -> bool:
        return self.mine.status is not GameStatus.PLAYING

    @property
    def shown(self) -> list[PlayedTurn]:
        """The player's turns that the person may see: as many as the person has played."""
        turns = self.theirs.game.turns
        return turns if self.over else turns[: len(self.mine.turns)]

    def guess(self, word: str) -> PlayedTurn:
        """Play a word for the person. Raises NotAllowed for a non-word, and in hard mode."""
        if self.over:
            raise NotAllowed("this game is over")
        if word not in self.mine.allowed:
            raise NotAllowed(f"{word.upper()} is not in the word list")
        if self.mine.rules.hard_mode and breaks_hard_mode(word, self.mine.state.clues):
            raise NotAllowed(f"hard mode: {word.upper()} ignores a clue")
        return self.mine.play(word)


def new_match(opponent: Opponent, secret: str, stop: Stop) -> Match:
    """Let a player play its game on a secret, and begin a person's."""
    words = opponent.knowledge.words
    return Match(
        opponent=opponent,
        mine=Game(secret, words.allowed_set, opponent.rules),
        theirs=opponent.play(secret, stop),
    )


def pick_secret(opponent: Opponent, wanted: str | None = None) -> str:
    """The wanted secret, or one of the player's secrets by chance. Raises NotAllowed."""
    if wanted is None:
        return secrets.choice(opponent.secrets)
    if wanted not in opponent.knowledge.words.allowed_set:
        raise NotAllowed(f"{wanted.upper()} is not in the word list")
    return wanted


class Shelf(Generic[Item]):
    """Keeps the newest things under names that nobody can guess."""

    def __init__(self, most: int = 100) -> None:
        self._most = most
        self._items: OrderedDict[str, Item] = OrderedDict()

    def put(self, item: Item) -> str:
        """Keep a thing. Returns its name."""
        name = secrets.token_urlsafe(12)
        self._items[name] = item
        while len(self._items) > self._most:
            self._items.popitem(last=False)
        return name

    def get(self, name: str) -> Item | None:
        return self._items.get(name)
