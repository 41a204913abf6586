"""A LoRA model computes through sums of base and adapter, and learns as peft would."""

from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.helpers.tiny import batch_of, gemma, lora_of, policy_of
from wordle_rl.algorithms.sft import Sft
from wordle_rl.backends.torch.fast.merged_lora import join, merge_adapter

ROWS = [([3, 9, 4, 30, 31, 5, 20], [0, 0, 0, 1, 1, 0, 1]), ([3, 9, 7], [0, 0, 1])]


def lora_model(family: str, folder: str) -> Any:
    settings = LoraConfig(r=2, target_modules="all-linear")
    return lora_of(folder) if family == "qwen2" else get_peft_model(gemma(), settings)


@pytest.mark.parametrize("family", ["qwen2", "gemma"])
@pytest.mark.parametrize("change", ["update", "load"])
def test_the_sums_follow_the_adapter(change, family, model_folder, tmp_path):
    policy, twin = (policy_of(lora_model(family, model_folder)) for _ in range(2))
    batch = batch_of(ROWS, [1.0, 1.0])
    policy.update(batch, Sft())
    if change == "load":
        policy.save(tmp_path)
        policy = twin
        policy.load(tmp_path)
    scores = policy.score(batch)
    with torch.inference_mode():
        for row, (ids, marks) in enumerate(ROWS):
            logits = policy.machine.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            for place in np.flatnonzero(marks):
                expected = logits[place - 1, ids[place]].item()
                assert scores[row, place] == pytest.approx(expected, abs=1e-4)


def test_frozen_matrices_below_each_other_are_joined_without_a_copy(model_folder):
    network = merge_adapter(lora_of(model_folder))
    attention, mlp = network.model.layers[1].self_attn, network.model.layers[1].mlp
    for layers in (
        [attention.q_proj, attention.k_proj, attention.v_proj],
        [mlp.gate_proj, mlp.up_proj],
    ):
        parts = [layer.weight for layer in layers]
        weight = join(parts)
        assert torch.equal(weight, torch.cat(parts)) and weight.data_ptr() == parts[0].data_ptr()
        assert torch.equal(join(parts[::-1]), torch.cat(parts[::-1]))
    rows = [part.requires_grad_() for part in torch.randn(6, 4).split([2, 4])]
    join(rows).sum().backward()
    assert all(torch.equal(row.grad, torch.ones_like(row)) for row in rows)


def test_other_adapters_go_through_peft():
    model = get_peft_model(gemma(), LoraConfig(r=2, target_modules="all-linear", use_dora=True))
    assert merge_adapter(model) is None and policy_of(model).machine.lm.model is model
