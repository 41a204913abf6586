"""The players that somebody can choose, each of them loaded at its first use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from wordle_rl.evaluation.turn_facts import TurnJudge
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.rollouts.opponent import Opponent


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A player by name, before it is loaded."""

    key: str  # its name in requests: letters, digits, - and _
    label: str  # its name for people
    load: Callable[[], Opponent]  # raises ValueError in one line
    version: Callable[[], Hashable] = lambda: None  # the player is loaded anew when it changes


class Lobby:
    """Players by their keys. Use it from one thread only."""

    def __init__(self, choices: Sequence[Choice], *, rival: str | None = None) -> None:
        """choices: the first one is the player that was asked for.

        rival: key of the player that it is compared with at first; None for the second choice.
        """
        self.choices = {choice.key: choice for choice in choices}
        self.first = choices[0].key
        self.rival = rival or choices[min(1, len(choices) - 1)].key
        self._loaded: dict[str, tuple[Hashable, Opponent]] = {}
        self._judges: dict[Knowledge, TurnJudge] = {}

    def get(self, key: str) -> Opponent:
        """The player of a key. Raises ValueError in one line when it cannot be loaded."""
        choice = self.choices[key]
        version = choice.version()
        known = self._loaded.get(key)
        if known is None or known[0] != version:
            known = self._loaded[key] = (version, choice.load())
        return known[1]

    def judge(self, opponent: Opponent) -> TurnJudge:
        """Computes the facts of turns on the word lists of a player."""
        return self._judges.setdefault(opponent.knowledge, TurnJudge(opponent.knowledge))
