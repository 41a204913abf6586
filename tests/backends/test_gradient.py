"""The gradient of an update is the one that its definition asks for, and no other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.helpers.backends import Backend, torch_backend
from tests.helpers.tiny import batch_of, full_forward, gemma, lora_of, plain_copy, qwen
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.sft import Sft

# Three conversations of unequal length; 1 marks sampled tokens, two answers in the first two.
ROWS = [
    ([3, 9, 4, 11, 12, 5, 6, 20, 21, 22], [0, 0, 0, 1, 1, 0, 0, 1, 1, 1]),
    ([3, 9, 30, 31, 7, 8, 40], [0, 0, 1, 1, 0, 0, 1]),
    ([3, 50], [0, 1]),
]
ADVANTAGES = [0.7, -1.3, 0.4]
WEIGHTS = [0.1, 0.05, 0.3]


def move_adapter(model: Any) -> Any:
    """An adapter that is not at its start, where half of its gradient is exactly zero."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def assert_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 0
    for name in actual:
        assert torch.allclose(actual[name], expected[name], atol=1e-5 * scale, rtol=1e-4), name


# -- against plain autograd -----------------------------------------------------------------------


def assert_gradient_is_of_plain_autograd(
    backend: Backend, model: Any, rows: list[tuple[list[int], list[int]]]
) -> None:
    """Log-probabilities of the sampled tokens, times advantage and weight of their row."""
    hf_model = plain_copy(model)
    advantages, weights = ADVANTAGES[: len(rows)], WEIGHTS[: len(rows)]
    batch = batch_of(rows, advantages, weights=weights)
    gradients = backend.gradients(backend.policy_of(model, temperature=0.7), batch, Grpo(beta=0.0))

    loss = torch.zeros((), dtype=torch.float64)
    for (ids, marks), advantage, weight in zip(rows, advantages, weights, strict=True):
        logprobs = full_forward(hf_model, ids, temperature=0.7)
        loss = loss - weight * advantage * (logprobs * torch.tensor(marks)).sum()
    loss.backward()
    expected = {n: p.grad for n, p in hf_model.named_parameters() if p.grad is not None}
    assert_close(gradients, expected)


ENDS = {  # the last token of an answer may be a stop token whose id is also that of padding
    "answer": ROWS,
    "stop token": [
        ([3, 9, 4, 30, 31, 32, 0], [0, 0, 0, 1, 1, 1, 1]),
        ([3, 9, 30, 0], [0, 0, 1, 1]),
    ],
}


@pytest.mark.parametrize("build", [qwen, gemma])
@pytest.mark.parametrize("end", ENDS)
def test_the_gradient_is_the_weighted_sum_over_sampled_tokens_of_plain_autograd(
    build, end, backend
):  # rows 7, 8 and 31: prompt, feedback and padding have no part in the sum
    assert_gradient_is_of_plain_autograd(backend, build(), ENDS[end])


@pytest.mark.parametrize("family", ["qwen2", "gemma"])
def test_the_gradient_of_an_adapter_is_the_same_sum(family, model_folder):  # rows 7 and 31
    settings = LoraConfig(r=4, lora_alpha=8.0, target_modules="all-linear")
    model = lora_of(model_folder) if family == "qwen2" else get_peft_model(gemma(), settings)
    assert_gradient_is_of_plain_autograd(torch_backend(), move_adapter(model), ROWS)


# -- which tokens train ---------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batch_tokens", [1, 1000])
@pytest.mark.parametrize("algorithm", [Grpo(beta=0.1), Sft()])
def test_rows_without_a_trained_token_give_no_nan_and_no_gradient(
    algorithm, micro_batch_tokens, backend
):
    # row 8: an ordinary prompt, one token, nothing but padding
    rows = [([3, 9, 4], [0, 0, 0]), ([5], [0]), ([], [])]
    base = batch_of(ROWS, ADVANTAGES, weights=WEIGHTS)
    union = batch_of(ROWS + rows, [*ADVANTAGES, 1.0, 1.0, 1.0], weights=[*WEIGHTS, 0.0, 0.0, 0.0])
    gradients = []
    for batch in (base, union):
        policy = backend.policy_of(qwen(), micro_batch_tokens=micro_batch_tokens)
        ref = policy.score(batch) - 0.5 * batch.trained
        assert np.isfinite(ref).all()
        gradients.append(backend.gradients(policy, replace(batch, ref_logprobs=ref), algorithm))
    assert_close(*gradients)


LONG_ROW = np.random.default_rng(0).integers(0, 64, 510).tolist(), [0] * 10 + [1] * 500


def test_a_completion_of_500_tokens_has_the_gradient_of_plain_autograd(backend):  # row 27
    assert_gradient_is_of_plain_autograd(backend, qwen(factor=2.0), [LONG_ROW])


# -- plumbing that must not matter ----------------------------------------------------------------


@pytest.mark.parametrize("build", [qwen, gemma])
@pytest.mark.parametrize("algorithm", [Grpo(beta=0.1), Sft()])
def test_the_gradient_does_not_depend_on_how_the_batch_is_split(
    algorithm, build, backend
):  # rows 9, 13
    random = np.random.default_rng(3)
    rows = []
    for length in (2, 12, 5, 9, 3, 12, 7, 4):
        rows.append((random.integers(0, 64, length).tolist(), [0] + [1] * (length - 1)))
    advantages = random.normal(size=8).tolist()
    batch = batch_of(rows, advantages, weights=random.uniform(0.1, 1, 8).tolist())
    batch = replace(batch, ref_logprobs=backend.policy_of(build(seed=4)).score(batch))
    expected, *results = [
        backend.gradients(backend.policy_of(build(), micro_batch_tokens=tokens), batch, algorithm)
        for tokens in (10_000, 48, 24, 1)  # all at once, four, two and one row at a time
    ]
    for gradients in results:
        assert_close(gradients, expected)


def test_clipping_scales_the_gradient_down_to_the_largest_norm_allowed(backend):
    batch = batch_of(ROWS, ADVANTAGES)
    grads = backend.gradients(backend.policy_of(qwen()), batch, Grpo(beta=0.0))
    clipped_grads = backend.gradients(
        backend.policy_of(qwen(), clip_grad_norm=0.01), batch, Grpo(beta=0.0)
    )
    norm = float(torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt())
    assert norm > 0.01
    assert_close(clipped_grads, {name: g * (0.01 / norm) for name, g in grads.items()})
    metrics = backend.policy_of(qwen(), clip_grad_norm=0.01).update(batch, Grpo(beta=0.0))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)  # as it was before clipping
