"""Compares a server with the trainer: the same tokens must have the same log-probabilities.

That finds another base model, a server without its adapter, and log-probabilities that are not at
the sampling temperature. Rounding stays below the limit, also in bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wordle_rl.backends.vllm.server import Request, ServerError
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.tokenizer import Tokenizer
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.sequences import pad

_TEXT = "Guess the secret word: <guess>crane</guess> -> x-✓xx. Then <guess>Maybe</guess>, or"
_ROWS, _TOKENS = 4, 16


def probe_text(tokenizer: Tokenizer) -> str:
    """A text with the special tokens of the chat template."""
    return tokenizer.render([{"role": "user", "content": _TEXT}])


def build_probe(
    tokenizer: Tokenizer, *, temperature: float, max_context: int, vocabulary: int
) -> Request:
    """A request of some answers that no stop token ends."""
    most = min(_TOKENS, max_context // 2)
    prompt = tokenizer.encode(probe_text(tokenizer))[: max_context - most]
    return Request(
        prompts=[prompt] * _ROWS,
        sampling=Sampling(temperature=temperature, max_tokens=most),
        most=most,
        stop_ids=frozenset(),
        vocabulary=vocabulary,
    )


def measure_gap(policy: Policy, prompt: Sequence[int], drawn: Sequence[Completion]) -> float:
    """Mean difference of log-probabilities between a server's answers and the trainer, in nats."""
    talks = []
    for answer in drawn:
        talks.append(Talk())
        talks[-1].hear(list(prompt), 0)
        talks[-1].answer(answer.ids, 0, answer.logprobs)
    batch = pad(talks, policy.tokenizer.pad_id)
    gaps = np.abs(policy.score(batch) - batch.sampler_logprobs)[batch.trained]
    return float(gaps.mean())


def check_gap(url: str, gap: float, most: float) -> None:
    """Raise ServerError for a server that plays another policy than the trainer's."""
    if not gap <= most:  # also if it is not a number
        raise ServerError(
            f"{url} differs from the trainer by {gap:.3g} nats a token, above "
            f"vllm.most_gap={most:g}: it has another base model than model.path, or was started "
            "without --logprobs-mode processed_logprobs"
        )
