"""Steps and losses on MLX keep the contracts that were written for torch, in the very same tests.

Where those ask for a policy, they are given one on MLX with the same weights.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx.utils import tree_flatten

from tests.algorithms import test_formulas as test_formulas
from tests.algorithms import test_losses as test_algorithms
from tests.algorithms.test_losses import CLIP_CASES
from tests.backends.torch import test_policy as test_policy
from tests.helpers.mlx_tiny import mlx_gradients, mlx_policy_of, settings_of
from tests.rollouts import test_chat as test_chat
from tests.training import test_gradient as test_gradient
from wordle_rl.algorithms.losses import clipped_surrogate, kl_k3
from wordle_rl.backends.mlx import backend as mlx_backend
from wordle_rl.backends.mlx.policy import MlxPolicy
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import MlxSettings

CONTRACTS: dict[ModuleType, tuple[str, ...]] = {
    test_chat: (
        "test_trained_ids_are_the_sampled_ids_of_every_turn",  # row 1
        "test_training_sees_the_logprobs_that_were_seen_while_decoding",  # row 2
        "test_a_conversation_has_one_bos_even_when_template_and_tokenizer_both_write_it",  # row 2
        "test_an_answer_that_hit_its_limit_is_no_guess_whatever_it_says",  # row 18
    ),
    test_policy: (
        "test_at_learning_rate_zero_the_ratio_stays_one_and_nothing_moves",  # row 3
    ),
    test_algorithms: (
        "test_groups_without_spread_are_skipped_and_counted_and_change_nothing",  # row 10
        "test_groups_without_spread_are_not_skipped_when_kl_is_in_the_loss",  # row 10
        "test_skipping_groups_without_spread_changes_no_gradient",  # row 10
        "test_a_group_whose_rewards_add_up_to_nothing_trains",  # row 26
    ),
    test_formulas: (
        "test_loss_and_gradient_are_those_of_the_formula_in_the_paper",  # rows 12 to 15
        "test_some_tokens_of_the_examples_are_clipped_and_some_are_not",  # row 15
    ),
    test_gradient: (
        "test_a_batch_with_nothing_to_train_leaves_the_weights_alone",  # row 8
        "test_the_kl_gradient_is_that_of_its_definition",  # row 14
    ),
}
for _module, _names in CONTRACTS.items():
    globals().update({name: getattr(_module, name) for name in _names})
played = test_chat.played  # its fixture


def policy_of(*arguments: Any, **settings: Any) -> Any:
    policy: Any = mlx_policy_of(*arguments, **settings)
    policy.model = policy.lm.model  # where the tests look for weights
    return policy


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {n: torch.tensor(np.array(w)) for n, w in tree_flatten(model.parameters())}


def gradients(policy: MlxPolicy, batch: Any, algorithm: Any) -> dict[str, torch.Tensor]:
    found = mlx_gradients(policy, batch, algorithm)
    return {name: torch.from_numpy(gradient.copy()) for name, gradient in found.items()}


@pytest.fixture(autouse=True)
def on_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"policy_of": policy_of, "weights_of": weights_of, "gradients": gradients,
            "parameters_of": weights_of}  # fmt: skip
    for module in CONTRACTS:
        for name, function in ours.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, function)


@pytest.mark.parametrize("kind", ["qwen", "gemma"])
@pytest.mark.parametrize("end", ["answer", "stop token"])
def test_the_gradient_is_the_sum_over_sampled_tokens_of_plain_autograd(kind, end, monkeypatch):
    # rows 7 and 8: no prompt, feedback or padding, but the stop token, though it is padding's id
    if end == "stop token":
        rows = [([3, 9, 4, 30, 31, 32, 0], [0, 0, 0, 1, 1, 1, 1]), ([3, 9, 30, 0], [0, 0, 1, 1])]
        monkeypatch.setattr(test_gradient, "ROWS", rows)
        monkeypatch.setattr(test_gradient, "ADVANTAGES", [0.7, -1.3])
        monkeypatch.setattr(test_gradient, "WEIGHTS", [0.1, 0.2])
    test_gradient.test_the_gradient_is_the_weighted_sum_over_sampled_tokens_of_plain_autograd(
        kind, ""
    )


def test_the_clip_is_asymmetric_and_only_on_the_pessimistic_side():  # row 15
    for ratio, advantage, expected, is_clipped in CLIP_CASES:

        def loss(log_ratio: mx.array, advantage: float = advantage) -> mx.array:
            return clipped_surrogate(mx, log_ratio, mx.array(advantage), low=0.2, high=0.3)[0]

        value, slope = mx.value_and_grad(loss)(mx.array(np.log(ratio).astype(np.float32)))
        assert value.item() == pytest.approx(expected)
        assert slope.item() == pytest.approx(0.0 if is_clipped else -ratio * advantage)


def test_the_kl_estimate_is_level_at_equality_and_has_the_slope_of_finite_differences():  # row 14
    reference = np.linspace(-4, -0.1, 14)
    for shift in (0.0, 0.7, -0.7):
        point, step = reference + shift, 1e-5
        given = [mx.array(array.astype(np.float32)) for array in (point, reference)]
        value, slope = mx.value_and_grad(lambda p, ref: kl_k3(mx, p, ref).sum())(*given)
        if shift == 0.0:
            assert value.item() == 0.0 and (np.array(slope) == 0.0).all()
        else:
            near = [kl_k3(np, point + s, reference) for s in (step, -step)]
            assert value.item() > 0.0
            assert np.allclose(np.array(slope), (near[0] - near[1]) / (2 * step), atol=1e-5)


def test_every_setting_of_the_backend_changes_what_is_built(monkeypatch):  # row 24
    cached: list[int] = []
    monkeypatch.setattr(mx, "set_cache_limit", cached.append)

    def built(**settings: Any) -> dict[str, Any]:
        policy = mlx_backend.build_policy(
            settings_of("embedded/micro"), MlxSettings(**settings), temperature=1.0, optim=Optim()
        )
        layer = type(policy.lm.model.layers[0]).__name__
        return {
            "precision": policy._weights_in_use["model.norm.weight"].dtype == mx.bfloat16,
            "micro_batch_tokens": policy._micro_batch_tokens,
            "gradient_checkpointing": layer == "Checkpointed",
            "compile": policy._compile is mx.compile,
            "cache_gb": cached[-1],
        }

    other = {"precision": "fp32", "micro_batch_tokens": 7, "gradient_checkpointing": True,
             "compile": True, "cache_gb": 0.5}  # fmt: skip
    assert other.keys() == MlxSettings.__dataclass_fields__.keys()
    usual = {"precision": "bf16"}  # auto may be either
    plain = built(**usual)
    try:
        for name, value in other.items():
            found = built(**usual | {name: value})
            changed = {key for key, had in plain.items() if found[key] != had}
            assert changed == {name}
    finally:
        mx.disable_compile()
