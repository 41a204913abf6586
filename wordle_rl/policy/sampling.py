"""How tokens are drawn: settings, and the uniform number behind each draw.

Every draw is a pure function of (seed, stream, step, rollout, turn, token), so it depends neither
on the batch layout nor on how often a run was stopped and resumed. The generator is the
counter-based Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Annotated, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from wordle_rl.runs.instantiate import Count, Within

T = TypeVar("T")
Tokens = Annotated[int, Within(1, 100_000)]  # of an answer
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# 0 is greedy; others below 0.01 overflow float32.
Temperature = Literal[0] | Annotated[float, Within(0.01, 10)]


class Stream(IntEnum):
    """What a turn's uniforms are for. Added to the turn's number, which is below 2**28."""

    TRAINING = 0
    EVALUATION = 1 << 28  # validation, reports and eval.py
    EVALUATION_HISTORY = 1 << 29  # the guesses before such a game, if any
    SHOTS = 3 << 28  # the examples that a model sees before its games
    HISTORY = 1 << 30  # the guesses before the policy takes over a game


class Purpose(IntEnum):
    """What a generator() is used for."""

    SPARE_SECRETS = 1
    MINIBATCHES = 2
    ALLOWED_SECRETS = 4
    DATA = 5
    SHOTS = 6
    HELD_BACK = 7  # tokens of a step that get no gradient


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are drawn: from the whole distribution, or from what a grammar leaves of it."""

    temperature: Temperature = 1.0
    max_tokens: Tokens = 16  # per answer, stop token included
    # words: only answers that guess an allowed word. clues: only those that fit all clues, and any
    # allowed word while more than grammar_from of them fit.
    grammar: Literal["words", "clues"] | None = None
    grammar_from: Count | None = None
    repeats: bool = True  # whether a word may be guessed again in a game; False needs the grammar
    # With temperature 0: beginnings of an answer to follow, of which the likeliest answer is taken.
    beams: Annotated[int, Within(1, 1000)] = 1

    def __post_init__(self) -> None:
        if self.grammar is None and not self.repeats:
            raise ValueError("sampling.repeats=false needs sampling.grammar=words or clues")
        if self.grammar != "clues" and self.grammar_from is not None:
            raise ValueError("sampling.grammar_from needs sampling.grammar=clues")

    def check_trainable(self) -> None:
        """Raise ValueError where the draws of a group would be equal."""
        if self.temperature == 0.0:
            raise ValueError(
                "sampling.temperature must be above 0 in training: greedy draws have no spread"
            )


def describe_drawing(temperature: float) -> str:
    """How the words behind a figure of wins were chosen."""
    return f"drawn at {temperature:g}" if temperature else "greedy"


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
    """A generator that no other purpose, seed, step or number shares.

    numpy pads seeds of up to four words with zeros, so [seed, step, 0] and [seed, step] give the
    same generator. These seeds have five words, the last of which is never 0.
    """
    words = [seed & 0xFFFFFFFF, seed >> 32, step, number, purpose]
    return np.random.default_rng(words)


def planned(
    secrets: Sequence[T], seed: int, positions: range, purpose: Purpose | None = None
) -> list[T]:
    """The secrets (or rows) at these positions of the run's sequence of groups.

    Each epoch goes once through a new shuffle of all secrets, or rows. purpose: of other shuffles
    than those of the training secrets.
    """

    @cache
    def order(epoch: int) -> np.ndarray:
        # The 1 tells the two words of a large seed from a seed and an epoch.
        default = np.random.default_rng([seed, epoch] if seed < 2**32 else [seed, epoch, 1])
        chance = default if purpose is None else generator(purpose, seed=seed, number=epoch)
        return chance.permutation(len(secrets))

    pairs = (divmod(position, len(secrets)) for position in positions)
    return [secrets[order(epoch)[index]] for epoch, index in pairs]


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Which uniforms the games of one actor get."""

    seed: int
    step: int = 0
    stream: Stream = Stream.TRAINING  # what the games are for
    first_rollout: int = 0  # number of game 0 within the step

    def uniforms(self, games: Sequence[int], turn: int, tokens: int) -> NDArray[np.float64]:
        """The uniform numbers in [0, 1) of one turn: [games, tokens], one for each token.

        games: their numbers within the actor. turn: answers before this one. A number does not
        depend on the other games, or on how many tokens there are.
        """
        counter = np.empty((len(games), tokens, 4), np.uint32)
        counter[..., 0] = np.arange(tokens)
        counter[..., 1] = self.stream + turn
        counter[..., 2] = (np.array(games, np.int64) + self.first_rollout)[:, None]
        counter[..., 3] = self.step
        words = philox4x32(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32))
        # 53 bits, the resolution of a double, from two words.
        high, low = words[..., 0].astype(np.uint64), words[..., 1].astype(np.uint64)
        bits = (high << np.uint64(21)) | (low >> np.uint64(11))
        return bits.astype(np.float64) * 2.0**-53
