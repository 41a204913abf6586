"""How tokens are drawn: settings, and the uniform number behind each draw.

Every draw is a pure function of (seed, stream, step, rollout, turn, token), through the
counter-based generator Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1,
2, 3"), so what is sampled depends neither on batch layout nor on how often a run was stopped and
resumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from wordle_rl.runs.instantiate import MOST, check_range

MOST_TOKENS = 100_000  # of an answer
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


class Stream(IntEnum):
    """What the uniforms of a turn are for: added to its number, which stays below 2**28."""

    TRAINING = 0
    EVALUATION = 1 << 28  # validation, reports and eval.py
    HISTORY = 1 << 30  # the guesses before a game is taken over


class Purpose(IntEnum):
    """What a generator() is for."""

    SPARE_SECRETS = 1
    MINIBATCHES = 2
    PROBE = 3


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of a draw; temperature 0 is greedy, below 0.01 float32 would overflow."""

    temperature: float = 1.0
    max_tokens: int = 16  # per answer, stop token included
    top_p: float = 1.0  # 1 keeps the whole distribution; less only outside training
    top_k: int = 0  # 0 keeps the whole distribution; more only outside training

    def __post_init__(self) -> None:
        if self.temperature != 0.0 and not 0.01 <= self.temperature <= 10.0:
            raise ValueError(
                f"sampling.temperature must be 0 (greedy) or 0.01..10, not {self.temperature}"
            )
        check_range("sampling.max_tokens", self.max_tokens, 1, MOST_TOKENS)
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"sampling.top_p must be above 0 and at most 1, not {self.top_p}")
        check_range("sampling.top_k", self.top_k, 0, MOST)

    @property
    def scoring_temperature(self) -> float:
        """At which tokens are scored: that of the draws, 1 for imitation where draws are greedy."""
        return self.temperature or 1.0

    def check_trainable(self) -> None:
        """Raise ValueError when the policy gradient of these draws would be wrong."""
        if self.temperature == 0.0:
            raise ValueError(
                "sampling.temperature must be above 0 in training: greedy groups have no spread"
            )
        if self.top_p < 1.0 or self.top_k > 0:
            raise ValueError(
                "sampling.top_p must be 1 and sampling.top_k 0 in training: the trainer scores "
                "the whole distribution, so cut-off draws would bias the gradient"
            )


def philox4x32(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Ten rounds of Philox on counters [..., 4] with one 64-bit key. Returns uint32 [..., 4]."""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k = [key[0] & 0xFFFFFFFF, key[1] & 0xFFFFFFFF]
    for _ in range(10):
        first, second = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        c = [
            (second >> _SHIFT) ^ c[1] ^ np.uint64(k[0]),
            second & _LOW,
            (first >> _SHIFT) ^ c[3] ^ np.uint64(k[1]),
            first & _LOW,
        ]
        k = [(k[0] + _WEYL[0]) & 0xFFFFFFFF, (k[1] + _WEYL[1]) & 0xFFFFFFFF]
    return np.stack(c, axis=-1).astype(np.uint32)


def generator(
    purpose: Purpose, *, seed: int, step: int = 0, number: int = 0
) -> np.random.Generator:
    """A generator that no other purpose, seed, step or number has.

    numpy takes up to four words of a seed as if zeros followed them, so [seed, step, 0] and
    [seed, step] are one generator; five words, the last of them never 0, are apart from any four.
    """
    words = [seed & 0xFFFFFFFF, seed >> 32, step, number, purpose]
    return np.random.default_rng(words)


def uniforms(
    *,
    seed: int,
    step: int,
    rollouts: NDArray[np.int64],
    turn: int,
    tokens: int,
    stream: Stream = Stream.TRAINING,
) -> NDArray[np.float64]:
    """The uniforms in [0, 1) behind a turn: one per rollout and token.

    rollouts: [N] index of each rollout within the step. Returns float64 [N, tokens]; an entry
    does not depend on which other rollouts or how many tokens were asked for.
    """
    counter = np.empty((len(rollouts), tokens, 4), np.uint32)
    counter[..., 0] = np.arange(tokens)
    counter[..., 1] = stream + turn
    counter[..., 2] = np.asarray(rollouts)[:, None]
    counter[..., 3] = step
    drawn = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    # 53 bits, the resolution of a double, from two words.
    high, low = drawn[..., 0].astype(np.uint64), drawn[..., 1].astype(np.uint64)
    bits = (high << np.uint64(21)) | (low >> np.uint64(11))
    return bits.astype(np.float64) * 2.0**-53
