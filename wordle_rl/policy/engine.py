"""What rollouts need of a model: answers to prompts of token ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.grammar import Choices, OpenAnswer
from wordle_rl.policy.sampling import Sampling

Prompts = Sequence[Sequence[int]]


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
    # With a grammar, for each id the tokens that it was drawn from. A single one was not drawn.
    choices: list[Choices] = field(default_factory=list)


class NotFinite(ArithmeticError):
    """Logits or weights are infinite or NaN: no token can be drawn, and nothing is saved."""

    def __init__(self, what: str = "predictions") -> None:
        super().__init__(f"the model's {what} are not finite numbers")


class EngineLost(RuntimeError):
    """The servers that play do not answer any more. The message says why."""


class Engine(Protocol):
    """Completes prompts with one state of a model's weights.

    A prompt has 1 to max_context - 1 tokens. A prefix shared with an earlier prompt and
    its answer need not be computed again.
    """

    max_context: int  # tokens of a prompt with its answer

    def complete(
        self,
        prompts: Prompts,
        sampling: Sampling,
        uniforms: NDArray[np.float64],
        grammar: Sequence[OpenAnswer] | None = None,
    ) -> list[Completion]:
        """Draw one answer to each prompt.

        uniforms: [prompts, sampling.max_tokens] in [0, 1), one for each token. grammar: for each
        prompt the answers that may be drawn; None allows every text. Raises ValueError for a prompt
        that is empty or too long, and NotFinite.
        """
        ...

    def next_logprobs(self, prompts: Prompts) -> NDArray[np.float32]:
        """Natural log-probabilities [prompts, V] of every token that could come next.

        At temperature 1. Raises as complete().
        """
        ...


def check_prompts(prompts: Prompts, max_context: int) -> None:
    """Raise ValueError unless each prompt has a token and leaves room for one."""
    if lengths := [len(ids) for ids in prompts if not 0 < len(ids) < max_context]:
        raise ValueError(f"a prompt must have 1 to {max_context - 1} tokens, not {lengths[0]}")
