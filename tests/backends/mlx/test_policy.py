"""The MLX policy: dropout, references, checkpoints, precision and pieces."""

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.models import qwen2

from tests.helpers.mlx_tiny import mlx_gradients, mlx_policy_of
from tests.helpers.tiny import batch_of, gemma, llama, lora_of, qwen
from tests.helpers.updates import ROWS, games
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.ppo import Ppo
from wordle_rl.backends.mlx.causal_lm import MlxLM
from wordle_rl.policy import token_outputs
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.grammar import Options
from wordle_rl.policy.policy import Policy


def test_two_scorings_are_equal_though_the_adapter_has_dropout(adapter):  # row 16
    policy = mlx_policy_of(lora_of(adapter))
    layer = policy.machine.loaded.model.layers[0].self_attn.q_proj
    assert layer.dropout._p_1 == 0.5
    policy.keep_reference()
    for reference in (False, True):
        first, second = (policy.score(games(), reference=reference) for _ in range(2))
        assert np.array_equal(first, second)


def policy_of_kind(kind: str, model_folder: str, **settings: Any) -> Policy:
    model = lora_of(model_folder) if kind == "lora" else qwen(340)
    return mlx_policy_of(model, precision="bf16" if kind == "bf16" else "fp32", **settings)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "lora"])
def test_a_head_learns_what_states_are_worth_though_the_model_rests(kind, model_folder, tmp_path):
    policy = policy_of_kind(kind, model_folder, lr=4e-2)
    policy.machine.add_value_head()
    before, batch = dict(policy.machine.weights), with_values(games((0.0, 0.0, 0.0)))
    apply = policy.machine.apply_gradients
    policy.machine.apply_gradients = lambda gradients: apply(
        {n: g if n.startswith("value_head") else mx.zeros_like(g) for n, g in gradients.items()}
    )
    for _ in range(100):
        policy.update(batch, Ppo(value_clip=0.0))
    assert batch.targets is not None
    gap = np.abs(policy.values(batch) - batch.targets)[batch.trained]
    assert gap.max() < 0.1 * np.ptp(batch.targets)
    names = {
        n for n in before if not np.array_equal(np.array(before[n]), policy.machine.weights[n])
    }
    assert names == {"value_head.weight", "value_head.bias"}
    policy.machine.export(tmp_path)  # whose loaders know of no head
    model = "adapters.safetensors" if kind == "lora" else "model.safetensors"
    assert not any(name.startswith("value_head") for name in mx.load(str(tmp_path / model)))
    assert mx.load(str(tmp_path / "value_head.safetensors")).keys() == {"weight", "bias"}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("quantised", [False, True])
def test_logits_of_choices_are_those_of_the_whole_vocabulary(tied, quantised):
    args = qwen2.ModelArgs(
        model_type="qwen2",
        hidden_size=32,
        num_hidden_layers=1,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        vocab_size=64,
        tie_word_embeddings=tied,
    )
    model = qwen2.Model(args)
    if quantised:
        nn.quantize(model, group_size=32)
    lm, hidden = MlxLM(model), mx.random.normal((3, 32))
    choices = [np.array([1, 5]), np.array([5, 60, 63]), np.array([2])]
    options = Options.of(choices)
    logits, table = (np.array(lm.compute_logits(hidden, arg)) for arg in (options, None))
    assert logits.shape == (3, 5) and table.shape == (3, 64)
    for row, tokens in enumerate(choices):
        open_columns = np.isin(options.tokens, tokens)
        np.testing.assert_allclose(logits[row, open_columns], table[row, tokens], atol=1e-5)
        assert (logits[row, ~open_columns] < -1e29).all()


@pytest.mark.parametrize("grammar", [False, True])
@pytest.mark.parametrize("build", [qwen, llama, gemma])
def test_checkpointed_layers_and_head_pieces_give_the_same_gradient(build, grammar, monkeypatch):
    batch = batch_of(ROWS, [0.7, -1.3, 0.4])
    if grammar:
        drawn = [row[learnt] for row, learnt in zip(batch.ids, batch.trained, strict=True)]
        batch = replace(batch, choices=[[np.unique([1, 63, i]) for i in row] for row in drawn])
    algorithm = Grpo(beta=0.0, entropy=0.1)
    grads = mlx_gradients(mlx_policy_of(build()), batch, algorithm)
    monkeypatch.setattr(token_outputs, "LOGITS_BYTES", 4 * 64 * 3)  # three tokens a piece
    policy = mlx_policy_of(build(), gradient_checkpointing=True)
    lean_grads = mlx_gradients(policy, batch, algorithm)
    assert grads.keys() == lean_grads.keys()
    scale = max(np.abs(g).max() for g in grads.values())
    assert all(np.abs(grads[n] - lean_grads[n]).max() < 1e-5 * scale for n in grads)


def with_values(batch: Batch) -> Batch:
    """A batch with all that PPO learns from."""
    random = np.random.default_rng(0)
    values, targets = (random.normal(size=(len(batch.ids), 1)) * batch.trained for _ in range(2))
    return replace(
        batch,
        old_values=values.astype(np.float32),
        targets=targets.astype(np.float32),
        target_scale=1.7,
    )
