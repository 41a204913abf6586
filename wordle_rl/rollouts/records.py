"""Records of rollouts: games and their tokens, which the trainer reads. Axis: K turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from wordle_rl.game.rules import Game
from wordle_rl.policy.engine import Completion


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTurn:
    """The tokens of one turn of one rollout."""

    prompt_ids: list[int]  # tokens fed since the previous answer, environment text included
    completion: Completion  # tokens that the policy drew, trained unchanged
    trained: bool = True  # False for a deliberate mistake in a teacher's game
    fresh: bool = False  # whether a new prompt begins here, without the earlier turns


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """The unit of reward, with its tokens: a game as played, or a single guess."""

    game: Game  # from where the policy took over; for a guess it has one turn
    group: int  # number within the step, see wordle_rl.rollouts; its rollouts share their start
    turns: list[TokenTurn] = field(default_factory=list)  # [K] one per turn of the game
    within: Game | None = None  # for a candidate guess, the whole game
    taken: bool = True  # whether that game took this guess

    @property
    def whole_game(self) -> Game:
        """The rollout's game, or for a candidate guess the game it was drawn in."""
        return self.game if self.within is None else self.within


def games_of(rollouts: Iterable[Rollout]) -> list[Game]:
    """The whole games of some rollouts, each once."""
    return list({id(rollout.whole_game): rollout.whole_game for rollout in rollouts}.values())


def isolate_last_turn(turns: list[TokenTurn]) -> TokenTurn:
    """The last turn of a game as its own sequence. The tokens before it become its prompt."""
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
