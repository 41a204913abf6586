"""The plan for MLX has the bytes of the arrays that a policy and its engine really hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from tests.helpers.mlx_tiny import mlx_policy_of, settings_of
from tests.helpers.tiny import gemma, qwen
from tests.helpers.updates import PLAIN, games
from wordle_rl.backends.torch.adapters import add_lora
from wordle_rl.backends.torch.planned_model import PlannedMlxModel
from wordle_rl.policy.memory_plan import GameSize
from wordle_rl.policy.optim import AdamW
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import LoraSettings

LORA = LoraSettings(rank=4, alpha=8)


@pytest.fixture(scope="module", params=["qwen", "gemma lora"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, PlannedMlxModel]:
    """A policy on MLX, and its plan."""
    folder: Path = tmp_path_factory.mktemp("planned")
    model = qwen() if request.param == "qwen" else gemma()
    model.save_pretrained(folder)
    lora = LORA if request.param == "gemma lora" else None
    planned = PlannedMlxModel(settings_of(folder, lora=lora), precision="fp32")
    policy = mlx_policy_of(
        add_lora(model, LORA, 0) if lora else model, name="muon", max_context=512
    )
    return policy, planned


def bytes_of(tree: Any) -> int:
    return sum(array.nbytes for _, array in tree_flatten(tree) if isinstance(array, mx.array))


def test_weights_adapters_and_moments(pair):
    policy, planned = pair
    policy.update(games(), PLAIN)
    kept = planned.keep(policy.optim, reference=False)
    assert kept.weights + kept.adapters == bytes_of(policy.lm.model.parameters())
    assert kept.trained == sum(weight.size for weight in policy.weights.values())
    moments = sum(
        array.nbytes
        for name, array in policy.optimizers._flatten_state().items()
        if not name.endswith("step")
    )
    assert kept.optimizer == moments


def test_keys_and_values_of_full_and_sliding_layers(pair):
    policy, planned = pair
    game = GameSize(opening=340, feed=5, whole=360, trained=20)  # longer than a ring
    engine = policy.engine()
    engine._stop_ids = frozenset()
    [row] = engine.open(1)
    engine.extend([row], [[5] * 340])
    rows = [row, *engine.fork(row, 2)]
    numbers = np.random.default_rng(0).random((3, 20))
    engine.decode(rows, Sampling(max_tokens=20), numbers)
    held = sum(ring.keys.nbytes + ring.values.nbytes for ring in engine._rings)
    assert planned.play(game, 3).keys_values.at(3) == pytest.approx(held, rel=0.15)


def test_4_bit_weights_have_a_scale_and_a_bias_per_group():
    half, four = (
        PlannedMlxModel(
            settings_of(f"mlx-community/gemma-3-4b-it-{form}", lora=LORA), precision="bf16"
        ).keep(AdamW(), reference=False)
        for form in ("bf16", "4bit")
    )
    assert half.parameters == 3_880_263_168  # text alone: 4,300,079,472 less its vision tower
    assert half.weights == 2 * half.parameters
    assert four.weights == pytest.approx(half.parameters * 4.5 / 8, rel=0.001)
    assert four.adapters == half.adapters
