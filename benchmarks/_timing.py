"""Timing in turns, the numbers made from it, and the arithmetic limit to compare with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


def seconds(run: Callable[[int], object], step: int) -> float:
    begin = time.perf_counter()
    run(step)
    return time.perf_counter() - begin


def alternate(runs: Mapping[str, Callable[[int], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each run in each repeat.

    Every other repeat goes backwards, so a machine that slows down slows all runs alike.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats):
        for name in list(runs)[:: -1 if repeat % 2 else 1]:
            taken[name].append(seconds(runs[name], repeat))
    return taken


def fastest(runs: Mapping[Any, Callable[[int], object]]) -> Any:
    """The run that takes the fewest seconds. Each is tried twice, to warm up."""
    tried = {name: min(seconds(run, 0), seconds(run, 1)) for name, run in runs.items()}
    for name, spent in tried.items():
        print(f"  tried {name}: {spent:.2f} s")
    return min(tried, key=lambda name: tried[name])


def rates(games: int, taken: Sequence[float]) -> dict[str, float]:
    """Games per second over the repeats: median, least and most."""
    each = [games / t for t in taken]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}


def speedup(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """How many times faster ours is, computed for each repeat."""
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}


def spread(numbers: Mapping[str, float], digits: int = 1) -> str:
    middle, least, most = (numbers[k] for k in ("median", "least", "most"))
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def linears(network: nn.Module) -> list[nn.Linear]:
    """The matrices of the layers, without the head and without an adapter's small factors."""
    head: Any = network.get_output_embeddings()  # pyright: ignore[reportCallIssue]
    return [
        module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and module is not head and ".lora_" not in name
    ]


def forward_flops(network: Any, conversations: Sequence[tuple[int, int]], drawn: int) -> float:
    """Multiplications and additions that every rollout of these conversations needs.

    conversations: for each, the tokens fed and how many of them are a shared opening, which is
    counted once. drawn: sampled tokens, the only ones that need the head.
    """
    config = network.config
    shared = max(opening for _, opening in conversations)
    fed = shared + sum(length - opening for length, opening in conversations)
    seen = shared**2 / 2 + sum((n**2 - k**2) / 2 for n, k in conversations)
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    matrices = 2.0 * sum(m.weight.numel() for m in linears(network)) * fed
    attention = 4.0 * width * config.num_hidden_layers * seen
    return matrices + attention + 2.0 * config.hidden_size * config.vocab_size * drawn


@torch.inference_mode()
def matmul_rate(network: nn.Module, dtype: torch.dtype, rows: int, least_seconds: float) -> float:
    """Measured FLOP/s in dtype when the model's own matrices multiply `rows` tokens."""
    matrices = [m.weight.detach().to(dtype) for m in linears(network)]
    inputs = {n: torch.randn(rows, n).to(dtype) for n in {w.shape[1] for w in matrices}}

    def once(_: int) -> None:
        for weight in matrices:
            nn.functional.linear(inputs[weight.shape[1]], weight)

    once(0)
    spent: list[float] = []
    while sum(spent) < least_seconds:
        spent.append(seconds(once, 0))
    return 2.0 * rows * sum(w.numel() for w in matrices) / statistics.median(spent)


def operators(run: Callable[[int], object], most: int = 8) -> dict[str, float]:
    """The operators that take the most processor time, with their share of it."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        spent = seconds(run, 0)
    shares = {e.key: e.self_cpu_time_total / 1e6 / spent for e in recorded.key_averages()}
    return dict(sorted(shares.items(), key=lambda item: -item[1])[:most])
