"""The torch policy: scores, ratios, references, LoRA, precision, checkpoints, failed updates."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import (
    batch_of,
    gemma,
    gradients,
    lora_of,
    policy_of,
    qwen,
    same,
    weights_of,
)
from tests.helpers.updates import PLAIN, ROWS, games, trained
from wordle_rl.backends.torch.trainer import TrainingModule, build_trainer, fit

# -- dropout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("merged", [True, False])
def test_two_scorings_are_equal_though_the_adapter_has_dropout(
    merged, adapter, monkeypatch
):  # row 16
    if not merged:  # as on a GPU, where peft computes
        monkeypatch.setattr("wordle_rl.backends.torch.machine.merge_adapter", lambda model: None)
    policy = policy_of(lora_of(adapter))
    assert any(
        isinstance(m, torch.nn.Dropout) and m.p == 0.5 for m in policy.machine.model.modules()
    )
    policy.keep_reference()
    for reference in (False, True):
        first, second = (policy.score(games(), reference=reference) for _ in range(2))
        assert np.array_equal(first, second)


def test_a_trainer_leaves_dropout_off(adapter, tmp_path):  # row 16
    policy = policy_of(lora_of(adapter))

    def learn(step: int) -> dict[str, float]:
        assert not any(m.training for m in policy.machine.model.modules())
        training.step = step + 1
        return policy.update(games(), PLAIN)

    training: Any = SimpleNamespace(
        policy=policy,
        checkpoints=SimpleNamespace(more=[], restored=None),
        folder=SimpleNamespace(path=tmp_path),
        setup=SimpleNamespace(trainer=SimpleNamespace(validate_every=9)),
        steps=lambda: iter(range(3)),
        remaining=3,
        step=0,
        learn=learn,
        validate=dict,  # Lightning's last batch has one
        validation_is_due=lambda: False,
    )
    fit(build_trainer(training, {}, []), TrainingModule(training, {}))
    twin = trained(policy_of(lora_of(adapter)), updates=3)
    assert same(weights_of(policy.machine.model), weights_of(twin.machine.model))
    assert not [*Path(tmp_path).iterdir()]


# -- learning -------------------------------------------------------------------------------------


def test_an_adapter_moves_and_its_base_and_reference_do_not(model_folder):  # row 23
    policy = policy_of(lora_of(model_folder))
    policy.keep_reference()
    before = weights_of(policy.machine.model)
    assert policy.machine.num_parameters[0] == sum(
        p.numel() for n, p in before.items() if "lora_" in n
    )
    policy.score(games(), reference=True)  # switches weights, and must switch back
    trained(policy)
    for name, parameter in policy.machine.model.named_parameters():
        if "lora_B.default" in name:
            assert (before[name] == 0).all() and (parameter != 0).any(), name
        elif "lora_A.default" in name:
            assert not torch.equal(before[name], parameter), name
        else:
            assert torch.equal(before[name], parameter), name


# -- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [qwen, gemma])
def test_rotary_frequencies_are_not_rounded_to_bfloat16(build):
    policy = policy_of(build(), precision="bf16")
    buffers = dict(policy.machine.lm.model.named_buffers())
    assert buffers
    for name, buffer in policy.machine.model.named_buffers():
        assert torch.equal(buffers[name], buffer), name


def test_steps_too_small_for_bfloat16_add_up():
    """A weight of 1 moves in steps of 2**-8 in bfloat16; 40 steps of 1e-3 are ten of those."""
    policy = policy_of(qwen(), precision="bf16", lr=1e-3)
    norm = policy.machine.lm.model.get_decoder().norm.weight
    start = norm.detach().clone()
    trained(policy, 1)
    assert torch.equal(norm, start)
    trained(policy, 39)
    assert (norm - start).abs().max() > 2**-7


def test_gradients_that_float16_cannot_hold_are_scaled(tmp_path):
    """Half of 2**-24 is 0 in float16, and there is nothing above 65,504."""
    batch = batch_of(ROWS, [1.0, -1.0, 1.0], weights=[1e-9] * 3)
    half_policy, full_policy = (policy_of(qwen(), precision=name) for name in ("fp16", "fp32"))
    expected = torch.cat([g.flatten() for g in gradients(full_policy, batch, PLAIN).values()])

    def find_error(scale: float) -> float:
        state = {**half_policy.machine._scaler.state_dict(), "scale": scale}
        half_policy.machine._scaler.load_state_dict(state)
        actual = torch.cat([g.flatten() for g in gradients(half_policy, batch, PLAIN).values()])
        return float((actual - expected).norm() / expected.norm())

    assert find_error(1.0) > 0.5
    assert find_error(2.0**80) < 0.02  # halved until it fits
    scale = half_policy.machine._scaler.get_scale()
    assert 2.0**16 < scale < 2.0**80
    half_policy.save(tmp_path)
    new_policy = policy_of(qwen(), precision="fp16")
    new_policy.load(tmp_path)
    assert new_policy.machine._scaler.get_scale() == scale
