"""What a rollout needs of a model: rows of tokens with kept keys and values. One per backend."""

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
    """The model's logits are infinite or not numbers, so nothing can be drawn from them."""

    def __init__(self) -> None:
        super().__init__("the model's predictions are not finite numbers")


class Engine(Protocol):
    """Rows are opaque numbers; each holds the tokens fed to it so far."""

    def open(self, n: int) -> list[int]:
        """n new empty rows."""
        ...

    def release(self, rows: Sequence[int]) -> None:
        """Give rows back; their numbers become invalid."""
        ...

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        """Feed prompt or feedback tokens, any length per row.

        Returns for each row whether it fitted into the context; a row that did not is unchanged.
        """
        ...

    def decode(
        self, rows: Sequence[int], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        """One answer per row. uniforms: [rows, sampling.max_tokens], the numbers behind each draw.

        Each row must have been extended since it was opened or decoded.
        """
        ...

    def fork(self, row: int, n: int) -> list[int]:
        """n new rows that start as copies of a row."""
        ...
