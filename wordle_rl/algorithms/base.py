"""What the training step asks of an algorithm; the step itself knows none of them.

Axes: R rollouts of a step, K turns of a rollout, S sequences, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.runs.instantiate import check_range

Floats = NDArray[np.float64]

LENGTHS = (  # of the thoughts that a scripted player can write
    "none",
    "notes",
    "brief",
    "full",
)


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """Quantities of some sequences, as arrays of one namespace; [S, T] unless said otherwise.

    All are 0 where not trained. The last five arrays are None unless the algorithm needs them.
    """

    logprobs: Any  # of the policy now, with gradient
    old_logprobs: Any  # the trainer's before the first update of this batch, no gradient
    advantages: Any
    trained: Any  # True at sampled tokens
    sampler_logprobs: Any = None  # when sampled
    units: Any = None  # [S] sequences with one number are one unit, and all of them are here
    ref_logprobs: Any = None  # the reference's
    entropy: Any = None  # of the distribution that the token was drawn from, with gradient
    values: Any = None  # of the value head before the token was drawn, with gradient
    old_values: Any = None  # the same before the first update, no gradient
    targets: Any = None  # what the value head should have said
    target_scale: float = 1.0  # unit of values in the loss


@dataclass(frozen=True, kw_only=True)
class AnswerLengths:
    """What the answers of one rollout took. Arrays are [K]."""

    lengths: NDArray[np.int64]  # sampled tokens
    max_tokens: int  # that an answer may have
    divergence: Floats | None = None  # log-probability less the reference's; None if not scored


@dataclass(frozen=True, kw_only=True)
class StepOutcomes:
    """What came of all rollouts of a step."""

    groups: NDArray[np.int64]  # [R] number of each rollout's group
    returns: list[Floats]  # [R] of [K] reward from each turn on; by game: the game's, at each turn
    won: NDArray[np.bool_]  # [R]
    complete: list[NDArray[np.bool_]]  # [R] of [K] False where a limit cut the answer off
    values: list[Floats] | None = None  # [R] of [K] of the value head before each answer
    by_turn: bool  # credit: by turn or by game
    discount: float  # of later turns in returns

    @property
    def totals(self) -> Floats:
        """[R] what each rollout earned from its first turn on."""
        return np.array([returns[0] if len(returns) else 0.0 for returns in self.returns])

    def members(self) -> list[NDArray[np.int64]]:
        """The rollouts of each group."""
        return [np.flatnonzero(self.groups == group) for group in np.unique(self.groups)]


@dataclass(frozen=True, kw_only=True)
class Advantages:
    """What a step's rollouts are worth learning from."""

    per_turn: list[Floats]  # [R] of [K]
    units: NDArray[np.int64] | None = None  # [R] rollouts with one number enter one loss together
    targets: list[Floats] | None = None  # [R] of [K] of the value head
    target_scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class UpdateRows:
    """The rollouts of one update, those of all processes. All are [R]."""

    lengths: NDArray[np.int64]  # trained tokens
    used: NDArray[np.bool_]  # False where every advantage is 0
    units: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """The games of a scripted player."""

    player: str  # its name, see wordle_rl.game.players.base
    reasoning: str = "none"  # length of the thought that is written before each guess
    choices: bool = False  # all that the player might have guessed is learnt, not only its guess
    slips: float = 0.0  # share of turns in which a mistake, never learnt, takes the guess's place


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Policies are improved by minimising the weighted sum of `loss` over trained tokens."""

    epochs: int = 1  # passes over one batch of rollouts
    minibatches: int = 1  # updates per pass, each on its share of the groups

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches"):
            in_range(name, getattr(self, name), 1, 100)

    @property
    def imitates(self) -> Imitation | None:
        """What is learnt in place of the policy's own games, or None when the policy plays."""
        return None

    @property
    def needs_reference(self) -> bool:
        """Whether ref_logprobs are read, in the loss or in penalties."""
        return False

    @property
    def needs_entropy(self) -> bool:
        """Whether `loss` reads entropy."""
        return False

    @property
    def needs_values(self) -> bool:
        """Whether a value head is judged by and trained."""
        return False

    @property
    def scores_rollouts(self) -> bool:
        """Whether `penalties` or `advantages` need the trainer's scores of all rollouts."""
        return self.needs_values

    @property
    def skips_zero_advantages(self) -> bool:
        """Whether a sequence of zero advantage gives exactly zero gradient and may be left out."""
        return False

    @property
    def resample_rounds(self) -> int:
        """How often groups that teach nothing are replaced by new ones."""
        return 0

    @property
    def needs_whole_games(self) -> bool:
        """Whether `advantages` reads how games ended, which single guesses seldom say."""
        return False

    def check(self, num_generations: int) -> None:  # noqa: B027  # most have nothing to refuse
        """Raise ValueError when this many rollouts per group cannot be learnt from."""

    def penalties(self, answers: AnswerLengths) -> dict[str, Floats]:
        """Further components [K] of the reward, by name, for what answers took."""
        return {}

    @abstractmethod
    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        """The advantage of each turn."""

    @abstractmethod
    def weights(self, rows: UpdateRows) -> Floats:
        """Weight [R] of every trained token of a rollout in the loss of one update."""

    @abstractmethod
    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        """Loss [S, T] before weighting, and per-token metrics [S, T] to be averaged.

        xp: array namespace (numpy, torch or mlx.core).
        """


def in_range(name: str, value: float, least: float, most: float) -> None:
    """Raise ValueError unless a setting of the algorithm is in a range."""
    check_range(f"algorithm.{name}", value, least, most)


def token_mean(rows: UpdateRows) -> Floats:
    """All trained tokens weigh alike, and together 1."""
    return np.full(len(rows.lengths), 1.0 / max(int(rows.lengths.sum()), 1))


def sequence_mean(rows: UpdateRows) -> Floats:
    """All rollouts weigh alike, the tokens of one alike, and all together 1."""
    return 1.0 / (len(rows.lengths) * np.maximum(rows.lengths, 1))
