"""The torch policy: scores, ratios, references, LoRA, precision, checkpoints, failed updates."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from tests.helpers.tiny import (
    batch_of,
    full_logprobs,
    gemma,
    gradients,
    lora_of,
    plain_copy,
    policy_of,
    qwen,
    qwen_like_tokenizer,
    same,
    weights_of,
)
from tests.helpers.updates import PLAIN, ROWS, games, play_bandit, trained
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.tiny_model import build_model
from wordle_rl.backends.torch.backend import TrainingModule
from wordle_rl.backends.torch.policy import TorchPolicy

# -- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [qwen, gemma, lambda: gemma(softcap=5.0)])
@pytest.mark.parametrize("micro_batch_tokens", [1, 1000])
def test_a_padded_batch_is_scored_as_its_rows_one_by_one(build, micro_batch_tokens):  # row 9
    model = build()
    plain = plain_copy(model)
    scores = policy_of(model, micro_batch_tokens=micro_batch_tokens).score(games())
    assert scores.dtype == np.float32
    for row, (ids, marks) in enumerate(ROWS):
        expected = full_logprobs(plain, ids) * np.array(marks)
        assert np.abs(scores[row, : len(ids)] - expected).max() < 1e-5
        assert (scores[row, len(ids) :] == 0).all()


# -- dropout --------------------------------------------------------------------------------------


@pytest.mark.parametrize("merged", [True, False])
def test_two_scorings_are_equal_though_the_adapter_has_dropout(
    merged, adapter, monkeypatch
):  # row 16
    if not merged:  # as on a GPU, where peft computes
        monkeypatch.setattr("wordle_rl.backends.torch.policy.can_be_fast", lambda model: False)
    policy = policy_of(lora_of(adapter))
    assert any(isinstance(m, torch.nn.Dropout) and m.p == 0.5 for m in policy.model.modules())
    policy.keep_reference()
    for reference in (False, True):
        first, second = (policy.score(games(), reference=reference) for _ in range(2))
        assert np.array_equal(first, second)


def test_a_trainer_may_drive_a_run_and_leaves_dropout_off(adapter):  # row 16
    policy = policy_of(lora_of(adapter))

    def run_step(step: int) -> dict[str, float]:
        assert not any(m.training for m in policy.model.modules())
        return policy.update(games(), PLAIN)

    numbers: Any = range(3)
    loader: Any = DataLoader(numbers, batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(TrainingModule(policy, run_step), loader)
    alone = trained(policy_of(lora_of(adapter)), updates=3)
    assert same(weights_of(policy.model), weights_of(alone.model))


# -- reference ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "bf16", "fresh adapter", "trained adapter"])
def test_the_reference_is_the_policy_at_the_start_and_stays_it(
    kind, model_folder, adapter
):  # row 17
    if kind in ("full", "bf16"):
        model = qwen(340)
        policy = policy_of(model, precision="bf16" if kind == "bf16" else "fp32")
    else:
        policy = policy_of(
            lora_of(model_folder if kind == "fresh adapter" else adapter, dropout=0.5)
        )
    policy.keep_reference()
    start = policy.score(games())
    assert np.array_equal(policy.score(games(), reference=True), start)
    ref = policy.score(games(), reference=True)
    metrics = policy.update(replace(games(), ref_logprobs=ref), Grpo(beta=0.1))
    assert metrics["policy/kl"] == 0.0
    trained(policy)
    assert np.array_equal(policy.score(games(), reference=True), start)
    assert np.abs(policy.score(games()) - start).max() > 1e-3


# -- learning -------------------------------------------------------------------------------------


def test_an_adapter_moves_and_its_base_and_reference_do_not(model_folder):  # row 23
    policy = policy_of(lora_of(model_folder))
    policy.keep_reference()
    before = weights_of(policy.model)
    assert policy.num_parameters[0] == sum(p.numel() for n, p in before.items() if "lora_" in n)
    policy.score(games(), reference=True)  # switches weights, and must switch back
    trained(policy)
    for name, parameter in policy.model.named_parameters():
        if "lora_B.default" in name:
            assert (before[name] == 0).all() and (parameter != 0).any(), name
        elif "lora_A.default" in name:
            assert not torch.equal(before[name], parameter), name
        else:
            assert torch.equal(before[name], parameter), name


@pytest.mark.parametrize("kind", ["full", "lora", "bf16", "fp16"])
def test_a_two_armed_bandit_is_won_in_95_of_100_games(kind, tmp_path):  # row 23
    # Embeddings this long let a small hidden state prefer the even half of 340 tokens; LoRA
    # leaves the embeddings as they are.
    model = qwen(340, factor=20.0)
    if kind == "lora":
        model.save_pretrained(tmp_path)
        qwen_like_tokenizer().save_pretrained(tmp_path)
        model = lora_of(str(tmp_path))
    policy = policy_of(model, lr=2e-2, precision=kind if kind[-2:] == "16" else "fp32")

    def wins() -> float:
        plain = plain_copy(policy.model)
        with torch.no_grad():
            shares = plain(input_ids=torch.tensor([[7, 9]])).logits[0, -1].float().softmax(-1)
        return float(shares[::2].sum())

    assert 0.2 < wins() < 0.8
    for step in range(40):
        batch = play_bandit(policy, step)
        if batch is not None:
            policy.update(batch, PLAIN)
    assert wins() >= 0.95


# -- failed updates -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "lora", "bf16", "fp16"])
@pytest.mark.parametrize("fault", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_skipped_as_if_it_had_never_been(kind, fault, model_folder):
    policies = [
        policy_of(
            lora_of(model_folder) if kind == "lora" else qwen(340),
            precision=kind if kind[-2:] == "16" else "fp32",
            clip_grad_norm=1.0,
        )
        for _ in range(2)
    ]
    for policy in policies:
        trained(policy, 1)
    before = weights_of(policies[0].model)
    metrics = policies[0].update(games((fault, 0.0, 0.0)), PLAIN)
    assert metrics["update/skipped"] == 1.0
    assert same(before, weights_of(policies[0].model))
    for policy in policies:  # moments and gradients are as they were, too
        trained(policy, 1)
    assert same(*(weights_of(policy.model) for policy in policies))


# -- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [qwen, gemma])
def test_rotary_frequencies_are_not_rounded_to_bfloat16(build):
    policy = policy_of(build(), precision="bf16")
    copied = dict(policy.lm.model.named_buffers())
    assert copied
    for name, buffer in policy.model.named_buffers():
        assert torch.equal(copied[name], buffer), name


def test_steps_too_small_for_bfloat16_add_up():
    """A weight of 1 moves in steps of 2**-8 in bfloat16; 40 steps of 1e-3 are ten of those."""
    policy = policy_of(qwen(), precision="bf16", lr=1e-3)
    norm = policy.lm.model.get_decoder().norm.weight
    start = norm.detach().clone()
    trained(policy, 1)
    assert torch.equal(norm, start)
    trained(policy, 39)
    assert (norm - start).abs().max() > 2**-7


def test_gradients_that_float16_cannot_hold_are_scaled(tmp_path):
    """Half of 2**-24 is 0 in float16, and there is nothing above 65,504."""
    batch = batch_of(ROWS, [1.0, -1.0, 1.0], weights=[1e-9] * 3)
    half, exact = (policy_of(qwen(), precision=name) for name in ("fp16", "fp32"))
    wanted = torch.cat([g.flatten() for g in gradients(exact, batch, PLAIN).values()])

    def find_error(scale: float) -> float:
        state = {**half._scaler.state_dict(), "scale": scale}
        half._scaler.load_state_dict(state)
        found = torch.cat([g.flatten() for g in gradients(half, batch, PLAIN).values()])
        return float((found - wanted).norm() / wanted.norm())

    assert find_error(1.0) > 0.5
    assert find_error(2.0**80) < 0.02  # halved until it fits
    scale = half._scaler.get_scale()
    assert 2.0**16 < scale < 2.0**80
    half.save(tmp_path)
    resumed = policy_of(qwen(), precision="fp16")
    resumed.load(tmp_path)
    assert resumed._scaler.get_scale() == scale


# -- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "bf16", "fp16", "lora", "muon"])
def test_a_checkpoint_restores_weights_and_moments_bit_for_bit(kind, model_folder, tmp_path):
    def fresh(seed: int) -> TorchPolicy:
        if kind == "lora":
            return policy_of(lora_of(model_folder, seed=seed))
        precision = kind if kind[-2:] == "16" else "fp32"
        name = "muon" if kind == "muon" else "adamw"
        return policy_of(qwen(340, seed=seed), precision=precision, name=name)

    written, read = fresh(0), fresh(1)
    trained(written)
    written.save(tmp_path)
    read.load(tmp_path)
    assert same(weights_of(written.model), weights_of(read.model))
    for before, after in zip(written.optimizers, read.optimizers, strict=True):
        moments, restored = before.state_dict()["state"], after.state_dict()["state"]
        assert moments.keys() == restored.keys() and moments
        for key, state in moments.items():
            assert all(torch.equal(value, restored[key][name]) for name, value in state.items())
    assert np.array_equal(written.score(games()), read.score(games()))
    trained(written, 2)
    trained(read, 2)
    assert np.array_equal(written.score(games()), read.score(games()))


@pytest.mark.parametrize(
    "case", ["width", "layers", "rank", "adapter into full", "full into adapter"]
)
def test_the_checkpoint_of_another_model_is_refused_and_changes_nothing(
    case, model_folder, tmp_path
):
    full, lora = policy_of(qwen(340)), policy_of(lora_of(model_folder))
    wide = {"hidden_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64}
    deep = {**wide, "hidden_size": 32, "layers": 3}
    written, read = {
        "width": (lambda: policy_of(build_model(vocab_size=340, **wide)), full),
        "layers": (lambda: policy_of(build_model(vocab_size=340, **deep)), full),
        "rank": (lambda: policy_of(lora_of(model_folder, rank=2)), lora),
        "adapter into full": (lambda: policy_of(lora_of(model_folder)), full),
        "full into adapter": (lambda: policy_of(qwen(340)), lora),
    }[case]
    trained(written(), 1).save(tmp_path)
    before = weights_of(read.model)
    with pytest.raises(ValueError, match=str(tmp_path / "model")):
        read.load(tmp_path)
    assert same(before, weights_of(read.model))
