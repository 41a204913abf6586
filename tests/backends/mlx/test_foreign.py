"""Checkpoints and adapters of the MLX backend that a stranger made, with right digests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.helpers.mlx_tiny import mlx_policy_of
from tests.helpers.tiny import qwen
from wordle_rl.policy.policy import Policy
from wordle_rl.runs.checkpoints import CheckpointError


def same_weights(a: dict[str, mx.array], b: dict[str, mx.array]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(np.array_equal(np.array(a[n]), np.array(b[n])) for n in a)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return mlx_policy_of(qwen(340))


def write(path: Path, arrays: dict[str, mx.array], **remarks: str) -> None:
    mx.save_safetensors(str(path), arrays, remarks)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    arrays, remarks = mx.load(str(path), return_metadata=True)
    change(arrays)
    write(path, arrays, **remarks)


MODEL, OPTIMIZER = "model/model.safetensors", "optimizer.safetensors"
GARBAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{
        f"{name}: {kind}": (name, spoil)
        for name in (MODEL, OPTIMIZER)
        for kind, spoil in {
            "text": lambda p: p.write_text("garbage"),
            "torn": lambda p: p.write_bytes(p.read_bytes()[:-4]),
        }.items()
    },
    "another shape": (OPTIMIZER, lambda p: edit(p, lambda a: a.update({"0:step": mx.zeros(3)}))),
    "another type": (OPTIMIZER, lambda p: edit(p, lambda a: a.update({"0:step": mx.array(0.5)}))),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_a_checkpoint_is_named_and_changes_nothing(
    kind: str, policy: Policy, tmp_path: Path
) -> None:
    name, spoil = GARBAGE[kind]
    policy.save(tmp_path)
    policy.load(tmp_path)
    before = dict(policy.machine.weights)
    spoil(tmp_path / name)
    with pytest.raises(CheckpointError, match=str(tmp_path / name)) as error:
        policy.load(tmp_path)
    assert len(str(error.value)) < 1000
    assert same_weights(policy.machine.weights, before)
