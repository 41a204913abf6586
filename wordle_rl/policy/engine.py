"""What rollouts need of a model: rows of tokens whose keys and values are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.sampling import Sampling


class StopReason(StrEnum):
    """Why an answer ended."""

    STOP_TOKEN = "stop_token"
    TOKEN_LIMIT = "token_limit"
    CONTEXT_FULL = "context_full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """The tokens of one answer."""

    ids: list[int]  # sampled token ids, stop token included
    logprobs: list[float]  # natural log at the sampling temperature, one per id
    stop: StopReason


class NotFinite(ArithmeticError):
    """The model's logits are infinite or NaN, so no token can be drawn from them."""

    def __init__(self) -> None:
        super().__init__("the model's predictions are not finite numbers")


class EngineLost(RuntimeError):
    """The servers that play do not answer any more. The message says why."""


class Engine(Protocol):
    """Rows are opaque numbers. Each row holds the tokens fed to it so far."""

    def open(self, n: int) -> list[int]:
        """Create n empty rows."""
        ...

    def release(self, rows: Sequence[int]) -> None:
        """Free rows. Their numbers become invalid."""
        ...

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        """Feed prompt or feedback tokens, any length per row.

        Returns whether each row fitted into the context. A row that did not fit is unchanged.
        """
        ...

    def decode(
        self, rows: Sequence[int], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        """Draw one answer per row.

        uniforms: [rows, sampling.max_tokens] in [0, 1), one for each draw. Each row must have been
        extended since it was opened or last decoded.
        """
        ...

    def next_logprobs(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Natural log-probabilities [rows, V] of every token that could come next.

        At temperature 1. The rows stay as they are, and must be extended as for decode().
        """
        ...

    def fork(self, row: int, n: int) -> list[int]:
        """Create n new rows as copies of a row."""
        ...
