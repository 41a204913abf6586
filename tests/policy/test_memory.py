"""The arithmetic of memory plans, against sums by hand and against a count of every tensor."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, Qwen2Config

from tests.helpers.tiny import batch_of, policy_of
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.memory import GB, Plan, find_machine
from wordle_rl.backends.sizes import KNOWN, read_sizes
from wordle_rl.policy.batch import ran_out_of_memory
from wordle_rl.policy.settings import LoraSettings

QWEN, QWEN_SMALL = KNOWN["Qwen/Qwen2.5-3B-Instruct"], KNOWN["Qwen/Qwen2.5-1.5B-Instruct"]
GEMMA = KNOWN["mlx-community/gemma-3-4b-it-bf16"]


def plan(**changes: Any) -> Plan:
    """Qwen2.5-3B with its defaults on one GPU."""
    fields: dict[str, Any] = {
        "sizes": QWEN,
        "device_kind": "cuda",
        "half": True,
        "lora": LoraSettings(rank=32),
        "longest": 2071,
        "games": 512,
        "held_out_games": 200,
        "micro_batch_tokens": 4096,
    }
    return Plan(**(fields | changes))


def test_a_tokens_keys_and_values_by_hand():
    assert QWEN.keys_values() == 36 * 2 * 2 * 128 * 2 == 36_864
    assert QWEN_SMALL.keys_values() == 28 * 2 * 2 * 128 * 2 == 28_672
    assert GEMMA.keys_values() == 139_264


def test_weights_and_adapters_by_hand():
    base = plan()
    assert base.trained == 59_867_136  # as peft counts them
    assert base.parameters == pytest.approx(3_085_938_688, rel=1e-4)  # as transformers counts them
    assert (base.parts["adapters"], base.parts["optimiser"]) == (4 * base.trained, 8 * base.trained)
    qv_plan = plan(lora=LoraSettings(rank=8, targets=["q_proj", "v_proj"]))
    assert qv_plan.trained == 36 * 8 * (2048 + 2048 + 2048 + 256)
    assert plan(lora=LoraSettings(rank=8, targets=r".*\.(q|v)_proj")).trained == qv_plan.trained
    # Full training in bf16 keeps 6 bytes a weight, and 8 of moments.
    full_plan = plan(lora=None)
    assert full_plan.parts["weights"] == 6 * full_plan.trained
    assert full_plan.parts["optimiser"] == 8 * full_plan.trained
    assert plan(quantized=True).parts["weights"] < 0.4 * base.parts["weights"]
    # Sums of base and adapter on a CPU: q, o; k, v; gate, up, down, of 2 bytes a number.
    sums = 36 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11_008) * 2
    assert plan(device_kind="cpu").parts["sums with the base"] == sums
    assert plan(has_reference=True).parts["reference"] == base.parts["adapters"]
    assert plan(muon=True).parts["optimiser"] == 4 * base.trained


def test_keys_and_values_by_hand():
    by_hand = 36_864 * 512 * 2071
    assert by_hand <= plan().keys_values(512) <= 9 / 8 * by_hand
    mlx = plan(sizes=GEMMA, device_kind="mlx").keys_values(16)
    assert mlx == 16 * 4096 * 34 * 2112  # sliding layers keep all tokens, too


# Peaks while playing, while learning and with layers computed again, in GB. Every tensor of the
# real code was counted on torch's meta device.
COUNTS: dict[str, tuple[dict[str, Any], tuple[float, float, float]]] = {
    "qwen3b on cuda": ({}, (59.23, 36.98, 8.87)),
    "qwen3b on mlx": ({"device_kind": "mlx"}, (52.03, 36.94, 9.08)),
    "qwen1.5b on cuda": ({"sizes": QWEN_SMALL, "lora": LoraSettings(rank=8)}, (43.71, 21.92, 4.71)),
    "gemma4b on mlx": (
        {
            "sizes": GEMMA,
            "device_kind": "mlx",
            "lora": LoraSettings(rank=8),
            "games": 32,
            "held_out_games": 16,
            "micro_batch_tokens": 2048,
        },
        # 14.74 with rings; 29 sliding layers of 32 games keep 832 tokens more.
        (14.74 + 32 * 4096 * 29 * 832 / GB, 25.49, 9.27),
    ),
    "gemma4b on cuda": ({"sizes": GEMMA, "lora": LoraSettings(rank=8)}, (176.47, 42.50, 10.80)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_peaks_are_within_15_percent_of_a_count_of_every_tensor(name):
    changes, (play_gb, train_gb, low_gb) = COUNTS[name]
    base = plan(**changes)
    assert base.peak_playing / GB == pytest.approx(play_gb, rel=0.15)
    assert base.peak_learning / GB == pytest.approx(train_gb, rel=0.15)
    assert plan(**changes, checkpointing=True).peak_learning / GB == pytest.approx(low_gb, rel=0.15)


def like_smollm2() -> Any:
    return Qwen2Config(
        vocab_size=340,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=9,
        num_key_value_heads=3,
    )


def like_gemma270m() -> Any:
    return Gemma3TextConfig(
        vocab_size=340,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=1,
        sliding_window=512,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
    )


@pytest.mark.parametrize("like", [like_smollm2, like_gemma270m])
def test_layers_written_out_keep_what_is_planned(like):
    """What autograd saves of four layers, for each token that they compute, but for weights."""
    config = like()
    model = AutoModelForCausalLM.from_config(config)
    policy = policy_of(model, micro_batch_tokens=100_000, max_context=700)
    assert read_sizes(config).fast and policy.machine.lm.is_fast
    opening, n, count = [10 + place % 200 for place in range(150)], 290, 8
    batch = batch_of(
        [(opening + [5 + row] * n, [0] * 150 + [1] * n) for row in range(count)], [1.0] * count
    )
    weights = {
        weight.untyped_storage().data_ptr() for weight in policy.machine.lm.model.parameters()
    }
    storages: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.machine.lm.compute_loss(batch, Grpo(beta=0.0), temperature=1.0)
    size = sum(part.nbytes() for place, part in storages.items() if place not in weights)
    estimate = plan(
        sizes=read_sizes(config), device_kind="cpu", half=False, lora=None, longest=150 + n
    )
    assert size / (150 + count * n) / 4 == pytest.approx(estimate._layer, rel=0.05)


def test_what_fits_is_found():
    base = plan()
    games = base.find_games(48 * GB)
    assert base.while_playing(games) <= 48 * GB < base.while_playing(games + 2)
    assert base.find_games(5 * GB) == 0
    tokens = base.find_tokens(30 * GB)
    assert replace(base, micro_batch_tokens=tokens).peak_learning <= 30 * GB
    assert replace(base, micro_batch_tokens=2 * tokens).peak_learning > 30 * GB
    assert base.find_tokens(10 * GB) == 0
    whole, parts = (find_machine(base, in_parts=flag) for flag in (False, True))
    assert (whole - 1) * 0.92 * GB < base.peak <= whole * 0.92 * GB
    assert base.fit((parts - 1) * 0.92 * GB) is None
    assert base.fit(parts * 0.92 * GB) is not None and parts < whole
    teacher_plan = plan(games=0)  # a teacher plays
    assert teacher_plan.peak_playing == teacher_plan.while_playing(200)


def test_only_a_lack_of_memory_is_taken_for_one():
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("[metal::malloc] Attempting to allocate 9 bytes"),
    ):
        assert ran_out_of_memory(error)
    assert not ran_out_of_memory(RuntimeError("shapes do not match"))
