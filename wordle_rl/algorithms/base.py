"""The interface of an algorithm to the training step, which knows no algorithm by name.

Axes: R rollouts of a step, K turns of a rollout, S sequences, T tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.rules import State
from wordle_rl.runs.instantiate import Within

Array = NDArray[Any]
Passes = Annotated[int, Within(1, 100)]
Weight = Annotated[float, Within(0, 1000)]
START = "start"  # the policy as it is when a run begins


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """Inputs of a loss, as arrays of one namespace; [S, T] unless noted, 0 where not trained.

    Arrays with the default None are given only to algorithms that need them.
    """

    logprobs: Any  # of the policy now, with gradient
    old_logprobs: Any  # the trainer's before the first update of this batch, no gradient
    advantages: Any
    trained: Any  # True at drawn tokens
    sampler_logprobs: Any = None  # when sampled
    units: Any = None  # [S] sequences with equal numbers are one unit; units are always whole
    ref_logprobs: Any = None  # the reference's
    entropy: Any = None  # of the distribution of each token, with gradient
    # Log-probability that a draw without the grammar is one of its choices, with gradient.
    allowed: Any = None
    values: Any = None  # of the value head before each token, with gradient
    old_values: Any = None  # the same before the first update, no gradient
    targets: Any = None  # of the value head
    target_scale: float = 1.0  # unit of values in the loss


@dataclass(frozen=True, kw_only=True)
class StepOutcomes:
    """The results of all rollouts of a step."""

    groups: Array  # [R] number of each rollout's group
    returns: list[Array]  # [R] of [K] reward from each turn on if by_turn, else the game's
    won: Array  # [R]
    complete: list[Array]  # [R] of [K] False where a limit cut the answer off
    values: list[Array] | None = None  # [R] of [K] value head before each answer
    by_turn: bool  # whether credit is by turn, not by game
    discount: float  # of later turns in returns
    states: list[list[State]] = field(default_factory=list)  # [R] of [K] board before each turn
    parts: list[dict[str, Array]] = field(default_factory=list)  # [R] of [K] by name: of returns
    weights: Mapping[str, float] = field(default_factory=dict)  # of components, within parts

    @property
    def totals(self) -> Array:
        """[R] reward of each rollout from its first turn on."""
        return np.array([returns[0] if len(returns) else 0.0 for returns in self.returns])

    def spread(self, values: Array) -> list[Array]:
        """[R] of [K]: a number of each rollout [R], repeated at each of its turns."""
        return [np.full(len(row), value) for row, value in zip(self.returns, values, strict=True)]

    def members(self) -> list[Array]:
        """The indices of each group's rollouts."""
        return [np.flatnonzero(self.groups == group) for group in np.unique(self.groups)]


@dataclass(frozen=True, kw_only=True)
class Advantages:
    """How much to learn from each turn of a step's rollouts, and the value head's targets."""

    per_turn: list[Array]  # [R] of [K] advantage of each turn
    units: Array | None = None  # [R] rollouts with equal numbers share one loss
    per_token: list[list[Array]] | None = None  # [R] of [K] of [tokens] what to add for each token
    targets: list[Array] | None = None  # [R] of [K] targets of the value head
    target_scale: float = 1.0  # unit of values in the loss

    @property
    def teaches(self) -> Array:
        """[R] False where every advantage is exactly 0."""
        mask = [bool(np.any(turns)) for turns in self.per_turn]
        if self.per_token is not None:
            token_mask = [any(np.any(tokens) for tokens in turns) for turns in self.per_token]
            mask = np.logical_or(mask, token_mask)
        return np.array(mask, bool)


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """Which scripted player's games an algorithm learns from, and how they are made."""

    player: str  # its name, see wordle_rl.game.players
    every_guess: bool = False  # learn every guess that the player might have made, not only its own
    slips: float = 0.0  # share of turns in which a mistake, never learnt, replaces the guess
    own_share: float = 0.0  # share of the groups that the model plays, and the player only teaches


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an algorithm asks of a step, besides rewards and the tokens that were drawn."""

    reference: bool = False  # ref_logprobs, in the loss or in penalties
    entropy: bool = False  # entropy, in the loss
    allowed: bool = False  # allowed, in the loss, at tokens that a grammar forced, too
    values: bool = False  # a value head, which the loss trains
    parts: bool = False  # what each component adds to returns, in advantages
    scores: bool = False  # the trainer's scores of all rollouts, in penalties or advantages
    zero_advantages: bool = True  # sequences of zero advantage, which have a gradient, too
    whole_answers: bool = True  # equal advantages for all tokens of an answer
    whole_games: bool = False  # finished games, in advantages


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Improves a policy by minimising the weighted sum of `loss` over trained tokens."""

    epochs: Passes = 1  # over one batch of rollouts
    minibatches: Passes = 1  # updates per pass, each on its share of the groups

    reference = START  # whose ref_logprobs are: the start, or what model= or init_from= can name
    resample = 0  # in how many rounds groups that teach nothing are replaced by new ones

    @cached_property
    def needs(self) -> Needs:
        """What the algorithm asks of a step, by its settings."""
        return Needs()

    @property
    def imitates(self) -> Imitation | None:
        """The games to learn from when they are not the policy's own, else None."""
        return None

    def check(self, num_generations: int) -> None:  # noqa: B027  # most have nothing to refuse
        """Raise ValueError when the algorithm cannot learn from so many rollouts per group."""

    def penalties(
        self, lengths: Array, max_tokens: int, divergence: Array | None = None
    ) -> dict[str, Array]:
        """Further components [K] of one rollout's reward by name, such as one for long answers.

        lengths: [K] sampled tokens. max_tokens: limit of an answer. divergence: [K] log-probability
        minus the reference's, None if not scored.
        """
        return {}

    @abstractmethod
    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        """The advantage of each turn."""

    def adapted(self, logprobs: Array) -> "Algorithm":
        """The algorithm whose loss this step learns, such as one with another weight of a term.

        logprobs: [M] natural logs of all tokens drawn in a step, of all processes, when drawn.
        """
        return self

    def learns(self, logprobs: Array, advantages: Array, draw: np.random.Generator) -> Array | None:
        """[M] False for drawn tokens that get no gradient from advantages; None: all get it.

        logprobs: as in adapted. advantages: [M] of the same tokens. draw: the same in all
        processes.
        """
        return None

    @abstractmethod
    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        """[R] weight of each drawn token of a rollout in the loss of one update.

        R: its rollouts in all processes. lengths: [R] drawn tokens. used: [R] False where every
        advantage is 0. units: [R] as in Advantages.
        """

    @abstractmethod
    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        """Loss [S, T] before weighting, and per-token metrics [S, T] to be averaged.

        xp: array namespace (numpy, torch or mlx.core).
        """


def token_mean(lengths: Array) -> Array:
    """Weights [R] of each token of a rollout: equal for all trained tokens, which add up to 1."""
    return np.full(len(lengths), 1.0 / max(int(lengths.sum()), 1))


def constant(xp: Any, x: Any) -> Any:
    """The same numbers without their gradient."""
    if hasattr(x, "detach"):
        return x.detach()
    stop = getattr(xp, "stop_gradient", None)
    return x if stop is None else stop(x)
