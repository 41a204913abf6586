"""Runs whose games are played by servers: the same checks for a small and for a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs import metrics_of, run
from wordle_rl.backends.vllm import policy as served

ROUNDING = 1e-4  # nats


def engine_of(*urls: str) -> list[str]:
    """The overrides that let servers play."""
    return ["rollout.engine=vllm", f"vllm.urls=[{','.join(urls)}]", "vllm.retries=2"]


def assert_every_update_reaches(
    urls: list[str], root: Path, *overrides: str
) -> tuple[dict[str, Any], Path]:
    """Train with these servers; each must play the trainer's policy before and after each update.

    Returns the summary and the run folder.
    """
    gaps: list[tuple[str, float]] = []

    def note(url: str, gap: float, most: float) -> None:
        gaps.append((url, gap))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served, "check_gap", note)
        summary, folder = run(root, *engine_of(*urls), *overrides)
    metrics = [m for m in metrics_of(folder) if "loss" in m]
    assert all(m["update/skipped"] == 0 for m in metrics)
    assert max(m["policy/largest_sampler_gap"] for m in metrics) < ROUNDING
    for url in urls:
        after = [gap for at, gap in gaps if at == url]
        assert after and max(after) < ROUNDING  # once, because it never failed
    return summary, folder
