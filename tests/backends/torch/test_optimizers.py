"""Which optimiser moves which weights, and what Muon's step is."""

import pytest
import torch
from torch import nn

from tests.helpers.tiny import lora_of, policy_of, qwen, qwen_like_tokenizer
from wordle_rl.backends.torch.optimizers import build_optimizers
from wordle_rl.policy.optim import Optim


def list_names(model: nn.Module, optim: Optim) -> dict[str, list[str]]:
    """Names of the parameters that each optimiser moves."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        type(o).__name__: [names[id(p)] for g in o.param_groups for p in g["params"]]
        for o in build_optimizers(model, optim)
    }


def test_muon_moves_the_matrices_of_the_layers_and_nothing_else():
    model = qwen()
    names = list_names(model, Optim(name="muon"))
    assert all(".layers." in name and name.endswith("proj.weight") for name in names["ExactMuon"])
    assert len(names["ExactMuon"]) == 7 * model.config.num_hidden_layers
    assert "model.embed_tokens.weight" in names["AdamW"]
    assert sorted(names["ExactMuon"] + names["AdamW"]) == sorted(
        n for n, _ in model.named_parameters()
    )


def test_under_lora_muon_moves_the_adapters_alone(tmp_path):
    qwen(340).save_pretrained(tmp_path)
    qwen_like_tokenizer().save_pretrained(tmp_path)
    model = lora_of(str(tmp_path))
    names = list_names(model, Optim(name="muon"))
    assert set(names) == {"ExactMuon"} and all("lora_" in name for name in names["ExactMuon"])


def test_a_step_of_muon_has_the_published_size_in_every_direction():
    """Singular values near 0.2 * lr * sqrt(longer side), whatever those of the gradient."""
    policy = policy_of(qwen(), name="muon", lr=1e-2)
    weight = next(p for p in policy.machine.trainable if p.ndim == 2 and p in muon_weights(policy))
    before = weight.detach().clone()
    torch.manual_seed(0)
    for parameter in policy.machine.trainable:
        parameter.grad = torch.randn_like(parameter) * 1e-3
    policy.machine._take_step()
    values = torch.linalg.svdvals(weight.detach() - before)
    size = 0.2 * 1e-2 * max(weight.shape) ** 0.5
    assert (values > 0.6 * size).all() and (values < 1.3 * size).all()


def test_what_muon_leaves_to_adamw_moves_at_its_share_of_the_learning_rate():
    rates = []
    for name in ("muon", "adamw"):
        policy = policy_of(qwen(), name=name, rest_lr_ratio=0.1)
        policy.machine.set_learning_rate(2e-3)
        rates.append([g["lr"] for o in policy.machine.optimizers for g in o.param_groups])
    assert rates == [[pytest.approx(2e-4), 2e-3], [2e-3]]


def muon_weights(policy) -> set:
    return {p for g in policy.machine.optimizers[1].param_groups for p in g["params"]}
