"""Conversations as tokens, and the rollouts they belong to. Axes: T tokens, K turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.rules import Game
from wordle_rl.policy.grammar import Choices
from wordle_rl.rewards.scoring import GameReward


@dataclass(slots=True)
class Talk:
    """A conversation as tokens: what an engine is asked with, and what is trained on.

    Prompts and answers stay the ids that they were. All lists are [T], one entry per token.
    """

    ids: list[int] = field(default_factory=list)
    trained: list[bool] = field(default_factory=list)  # True in answers that are learnt
    # Natural logs at the sampling temperature, 0 where nothing was drawn.
    logprobs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)  # the turn whose prompt or answer it is in
    # The tokens that each one was drawn from under a grammar, None for the whole vocabulary.
    choices: list[Choices | None] = field(default_factory=list)
    answers: dict[int, range] = field(default_factory=dict)  # by turn: where its answer is

    def hear(self, ids: list[int], turn: int) -> None:
        """Add text of the environment that comes before the answer of a turn."""
        self._add(ids, turn, [0.0] * len(ids), trained=False)

    def answer(
        self,
        ids: list[int],
        turn: int,
        logprobs: list[float] | None = None,
        *,
        choices: Sequence[Choices] = (),
        trained: bool = True,
    ) -> None:
        """Add the answer of a turn.

        logprobs: None where nobody drew it. choices: of a grammar, none without one. A token that
        was the only choice is not trained.
        """
        self.answers[turn] = range(len(self.ids), len(self.ids) + len(ids))
        self._add(ids, turn, logprobs or [0.0] * len(ids), trained=trained)
        if choices:
            self.choices[-len(ids) :] = choices
            self.trained[-len(ids) :] = [trained and len(tokens) > 1 for tokens in choices]

    def train_forced(self) -> None:
        """Train the tokens, too, that were a grammar's only choice. Their log-probability is 0.

        Only the semantic loss reads them: they have no advantage and count in no mean.
        """
        pairs = zip(self.trained, self.choices, strict=True)
        self.trained = [trained or tokens is not None for trained, tokens in pairs]

    @property
    def drawn(self) -> list[bool]:
        """The trained tokens but for those that were a grammar's only choice."""
        pairs = zip(self.trained, self.choices, strict=True)
        return [trained and (tokens is None or len(tokens) > 1) for trained, tokens in pairs]

    def _add(self, ids: list[int], turn: int, logprobs: list[float], *, trained: bool) -> None:
        self.ids += ids
        self.trained += [trained] * len(ids)
        self.logprobs += logprobs
        self.turns += [turn] * len(ids)
        self.choices += [None] * len(ids)

    def as_prompt(self) -> Talk:
        """A new conversation in which all of this one is the prompt of turn 0."""
        talk = Talk()
        talk.hear(self.ids, 0)
        return talk


# What the trainer computes for one conversation before its advantages, by the name in a Batch: each
# array is [T], and 0 where no token is trained.
Scores = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """The unit of reward, with its tokens: a game as played, or a single guess."""

    game: Game  # from where the policy took over; for a guess it has one turn
    group: int  # number within the step, see kinds.py; its rollouts share their start
    talks: list[Talk] = field(default_factory=list)  # one for each prompt that begins anew
    within: Game | None = None  # for a candidate guess, the whole game
    taken: bool = True  # whether that game took this guess
    # Once it is scored, with the algorithm's penalties.
    reward: GameReward = field(default_factory=lambda: GameReward(turns=()))
    scores: list[Scores] | None = None  # one per talk, if the algorithm needs them for advantages

    @property
    def whole_game(self) -> Game:
        """The rollout's game, or for a candidate guess the game it was drawn in."""
        return self.within or self.game

    @property
    def answer_lengths(self) -> NDArray[np.int64]:
        """[K] tokens of each answer."""
        return np.array([len(part) for talk in self.talks for part in talk.answers.values()], int)


def games_of(rollouts: Iterable[Rollout]) -> list[Game]:
    """The whole games of some rollouts, each once."""
    return list({id(rollout.whole_game): rollout.whole_game for rollout in rollouts}.values())
