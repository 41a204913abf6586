"""How the benchmarks count work and take turns. `.ci/run` runs the scripts themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import AVX2
from benchmarks import _timing as timing
from tests.helpers.tiny import qwen
from wordle_rl.runs.paths import ROOT

HEADS, DIM, LAYERS = 4, 8, 2  # of tiny.qwen


def counted(model: torch.nn.Module, tokens: int) -> float:
    """FLOPs of a causal forward pass, from torch's count, which sees every pair of tokens."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.ones(1, tokens, dtype=torch.long))
    # Attention over all pairs of tokens. Causal attention needs half of it.
    pairs = 4 * HEADS * DIM * LAYERS * tokens**2
    return counter.get_total_flops() - pairs / 2


def test_flops_of_a_conversation_equal_what_torch_counts_in_a_forward_pass():
    model = qwen().eval()
    model.set_attn_implementation("eager")  # torch does not count its fused kernels everywhere
    assert timing.forward_flops(model, [(20, 0)], 20) == pytest.approx(counted(model, 20))


def test_flops_of_a_shared_opening_are_counted_once():
    model = qwen().eval()
    alone, both = (timing.forward_flops(model, [(20, 12)] * n, 0) for n in (1, 2))
    assert alone == pytest.approx(timing.forward_flops(model, [(20, 0)], 0))
    opening = timing.forward_flops(model, [(12, 0)], 0)
    assert both == pytest.approx(2 * alone - opening)


def test_runs_take_turns_and_every_other_repeat_goes_backwards():
    calls: list[tuple[str, int]] = []
    runs = {name: lambda step, name=name: calls.append((name, step)) for name in "abc"}
    taken = timing.alternate(runs, 3)
    assert "".join(name for name, _ in calls) == "abc" + "cba" + "abc"
    assert [step for _, step in calls] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3, "c": 3}


def test_speedup_compares_each_repeat_with_itself():
    # In a repeat where the machine runs at half speed, both are slow.
    assert timing.speedup([1.0, 2.0, 1.0], [4.0, 8.0, 5.0]) == {
        "median": 4.0, "least": 4.0, "most": 5.0,
    }  # fmt: skip


def test_avx2_restarts_the_command_with_settings_that_libraries_read_when_loaded():
    show = "import benchmarks, os, sys; print(os.environ['ATEN_CPU_CAPABILITY'], *sys.argv[1:])"
    options = ["--avx2", "--games", "16"]
    shown = subprocess.run(
        [sys.executable, "-c", show, *options], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.split() == ["avx2", *options]
    checks = (ROOT / ".ci" / "run").read_text()
    assert " ".join(f"{name}={value}" for name, value in AVX2.items()) in checks
