"""A LoRA model computes through sums of base and adapter, and learns as peft would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import batch_of, gemma, lora_of, policy_of
from wordle_rl.algorithms.sft import Sft
from wordle_rl.backends.torch.fast.frozen_head import compute_logprobs
from wordle_rl.backends.torch.fast.merged_lora import MergedLinear, merge_adapter
from wordle_rl.backends.torch.token_outputs import WantedMeans, WantedTokens
from wordle_rl.backends.torch.trained_model import TrainedModel
from wordle_rl.policy.batch import Targets

ROWS = [([3, 9, 4, 30, 31, 5, 20], [0, 0, 0, 1, 1, 0, 1]), ([3, 9, 7], [0, 0, 1])]
PLACES, WIDTH, VOCAB = 700, 16, 40


def find_merged(model: Any) -> list[MergedLinear]:
    return [layer for layer in model.modules() if isinstance(layer, MergedLinear)]


def test_every_adapted_matrix_is_one_frozen_sum_that_shares_the_rest(adapter):
    model = lora_of(adapter)
    merged = merge_adapter(model)
    sums = find_merged(merged)
    assert len(sums) == 7 * model.config.num_hidden_layers
    assert not any(layer.weight.requires_grad for layer in sums)
    own = {id(p) for p in model.parameters()}
    new = [p for p in merged.parameters() if id(p) not in own]
    assert {id(p) for p in new} == {id(layer.weight) for layer in sums}


@pytest.mark.parametrize("change", ["update", "load"])
def test_the_sums_follow_the_adapter(change, model_folder, tmp_path):
    policy, other = policy_of(lora_of(model_folder)), policy_of(lora_of(model_folder))
    batch = batch_of(ROWS, [1.0, 1.0])
    policy.update(batch, Sft())
    if change == "load":
        policy.save(tmp_path)
        policy = other
        policy.load(tmp_path)
    found = policy.score(batch)
    with torch.inference_mode():
        for row, (ids, marks) in enumerate(ROWS):
            logits = policy.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            for place in np.flatnonzero(marks):
                expected = logits[place - 1, ids[place]].item()
                assert found[row, place] == pytest.approx(expected, abs=1e-4)


def test_other_adapters_and_models_go_through_peft(model_folder):
    from peft import LoraConfig, get_peft_model

    dora = LoraConfig(r=2, target_modules="all-linear", use_dora=True)
    inner = lora_of(model_folder).unload()
    assert merge_adapter(get_peft_model(inner, dora)) is None
    other = get_peft_model(gemma(), LoraConfig(r=2, target_modules="all-linear"))
    assert TrainedModel(other, "fp32", checkpointing=False).lm.model is other


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", ["tokens", "means"])
def test_logprobs_under_a_frozen_head_are_those_of_autograd(kind, temperature):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(PLACES, WIDTH, generator=generator, requires_grad=True)
    weight = torch.randn(VOCAB, WIDTH, generator=generator)
    factors = torch.randn(PLACES, generator=generator)
    shares = torch.zeros(PLACES, VOCAB)
    if kind == "tokens":
        ids = torch.randint(0, VOCAB, (PLACES,), generator=generator)
        shares[torch.arange(PLACES), ids] = 1.0
        wanted: Any = WantedTokens(ids)
    else:
        places = np.repeat(np.arange(PLACES), 2)
        ids = np.stack([places[::2] % VOCAB, (places[::2] + 3) % VOCAB], axis=1).flatten()
        parts = np.tile(np.array([0.25, 0.75], np.float32), PLACES)
        shares[torch.from_numpy(places), torch.from_numpy(ids)] = torch.from_numpy(parts)
        targets = Targets(places=places, ids=ids, probabilities=parts)
        wanted = WantedMeans(torch.ones(1, PLACES, dtype=torch.bool), [targets])
    expected = (((states @ weight.T) / temperature).log_softmax(-1) * shares).sum(-1)
    [gradient] = torch.autograd.grad((expected * factors).sum(), states)
    found = compute_logprobs(states, weight, temperature, wanted, most=300)
    assert torch.allclose(found, expected, atol=1e-4)
    [own] = torch.autograd.grad((found * factors).sum(), states)
    assert torch.allclose(own, gradient, atol=1e-4)
