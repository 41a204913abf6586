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
    one = plan()
    assert one.trained == 59_867_136  # as peft counts them
    assert one.parameters == pytest.approx(3_085_938_688, rel=1e-4)  # as transformers counts them
    assert (one.parts["adapters"], one.parts["optimiser"]) == (4 * one.trained, 8 * one.trained)
    few = plan(lora=LoraSettings(rank=8, targets=["q_proj", "v_proj"]))
    assert few.trained == 36 * 8 * (2048 + 2048 + 2048 + 256)
    assert plan(lora=LoraSettings(rank=8, targets=r".*\.(q|v)_proj")).trained == few.trained
    # Full training in bf16 keeps 6 bytes a weight, and 8 of moments.
    full = plan(lora=None)
    assert full.parts["weights"] == 6 * full.trained
    assert full.parts["optimiser"] == 8 * full.trained
    assert plan(quantized=True).parts["weights"] < 0.4 * one.parts["weights"]
    # Sums of base and adapter on a CPU: q, o; k, v; gate, up, down, of 2 bytes a number.
    sums = 36 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11_008) * 2
    assert plan(device_kind="cpu").parts["sums with the base"] == sums
    assert plan(has_reference=True).parts["reference"] == one.parts["adapters"]
    assert plan(muon=True).parts["optimiser"] == 4 * one.trained


def test_keys_and_values_by_hand():
    by_hand = 36_864 * 512 * 2071
    assert by_hand <= plan().keys_values(512) <= 9 / 8 * by_hand
    mlx = plan(sizes=GEMMA, device_kind="mlx").keys_values(16)
    assert mlx == 16 * 4096 * 34 * 2112  # sliding layers keep all tokens, too


# Peaks while playing, while learning and with layers computed again, in GB. Every tensor of the
# real code was counted on torch's meta device.
COUNTED: dict[str, tuple[dict[str, Any], tuple[float, float, float]]] = {
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


@pytest.mark.parametrize("name", COUNTED)
def test_peaks_are_within_15_percent_of_a_count_of_every_tensor(name):
    changes, (playing, learning, lean) = COUNTED[name]
    one = plan(**changes)
    assert one.peak_playing / GB == pytest.approx(playing, rel=0.15)
    assert one.peak_learning / GB == pytest.approx(learning, rel=0.15)
    assert plan(**changes, checkpointing=True).peak_learning / GB == pytest.approx(lean, rel=0.15)


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
    opening, own, count = [10 + place % 200 for place in range(150)], 290, 8
    batch = batch_of(
        [(opening + [5 + row] * own, [0] * 150 + [1] * own) for row in range(count)], [1.0] * count
    )
    weights = {
        weight.untyped_storage().data_ptr() for weight in policy.machine.lm.model.parameters()
    }
    kept: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.machine.lm.compute_loss(batch, Grpo(beta=0.0), temperature=1.0)
    saved = sum(part.nbytes() for place, part in kept.items() if place not in weights)
    planned = plan(
        sizes=read_sizes(config), device_kind="cpu", half=False, lora=None, longest=150 + own
    )
    assert saved / (150 + count * own) / 4 == pytest.approx(planned._layer, rel=0.05)


def test_what_fits_is_found():
    one = plan()
    games = one.find_games(48 * GB)
    assert one.while_playing(games) <= 48 * GB < one.while_playing(games + 2)
    assert one.find_games(5 * GB) == 0
    tokens = one.find_tokens(30 * GB)
    assert replace(one, micro_batch_tokens=tokens).peak_learning <= 30 * GB
    assert replace(one, micro_batch_tokens=2 * tokens).peak_learning > 30 * GB
    assert one.find_tokens(10 * GB) == 0
    whole, parts = (find_machine(one, in_parts=some) for some in (False, True))
    assert (whole - 1) * 0.92 * GB < one.peak <= whole * 0.92 * GB
    assert one.fit((parts - 1) * 0.92 * GB) is None
    assert one.fit(parts * 0.92 * GB) is not None and parts < whole
    taught = plan(games=0)  # a teacher plays
    assert taught.peak_playing == taught.while_playing(200)


def test_only_a_lack_of_memory_is_taken_for_one():
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("[metal::malloc] Attempting to allocate 9 bytes"),
    ):
        assert ran_out_of_memory(error)
    assert not ran_out_of_memory(RuntimeError("shapes do not match"))
