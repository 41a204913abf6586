"""What a rollout leaves behind, and what the trainer takes in. Axes: N sequences, T tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from wordle_rl.game.rules import Game
from wordle_rl.policy.engine import Completion

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTurn:
    """The tokens of one turn of one rollout."""

    prompt_ids: list[int]  # tokens fed since the previous answer, environment text included
    completion: Completion  # what the policy drew; trained as it is
    trained: bool = True  # False for a mistake that was put into a teacher's game
    fresh: bool = False  # whether a prompt of its own begins here, which no earlier turn is in


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """What is judged as one, with its tokens: a game as it was played, or one guess."""

    game: Game  # from the state in which the policy took over; of one turn for a guess
    group: int  # number within the step, see wordle_rl.rollouts; a group has one state at its start
    turns: list[TokenTurn] = field(default_factory=list)  # [K] as many as the game has
    within: Game | None = None  # the whole game that this guess was a candidate in
    taken: bool = True  # whether it is how that game went on

    @property
    def whole_game(self) -> Game:
        """The game that it is, or that it was a candidate in."""
        return self.game if self.within is None else self.within


def games_of(rollouts: Iterable[Rollout]) -> list[Game]:
    """The games of some rollouts; one that guesses were candidates in counts once."""
    return list({id(rollout.whole_game): rollout.whole_game for rollout in rollouts}.values())


def isolate_last_turn(turns: list[TokenTurn]) -> TokenTurn:
    """The last of a game's turns on its own: all it was drawn after is its prompt, not trained."""
    last, begin = turns[-1], len(turns) - 1
    while begin > 0 and not turns[begin].fresh:
        begin -= 1
    before = [[*turn.prompt_ids, *turn.completion.ids] for turn in turns[begin:-1]]
    return TokenTurn(
        prompt_ids=[*chain(*before), *last.prompt_ids],
        completion=last.completion,
        trained=last.trained,
        fresh=True,
    )
