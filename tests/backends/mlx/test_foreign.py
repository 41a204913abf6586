"""Checkpoints and adapters of the MLX backend that a stranger made, with right digests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tests.helpers.mlx_tiny import mlx_policy_of, same_weights
from tests.helpers.tiny import lora_of, qwen, qwen_like_tokenizer
from wordle_rl.backends.adapters import convert_adapter
from wordle_rl.backends.mlx.policy import MlxPolicy
from wordle_rl.runs.checkpoints import CheckpointError


@pytest.fixture(scope="module")
def policy() -> MlxPolicy:
    return mlx_policy_of(qwen(340))


def write(path: Path, arrays: dict[str, mx.array], **remarks: str) -> None:
    mx.save_safetensors(str(path), arrays, remarks)


def other(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
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
    "another shape": (OPTIMIZER, lambda p: other(p, lambda a: a.update({"0:step": mx.zeros(3)}))),
    "another type": (OPTIMIZER, lambda p: other(p, lambda a: a.update({"0:step": mx.array(0.5)}))),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_a_checkpoint_is_named_and_changes_nothing(
    kind: str, policy: MlxPolicy, tmp_path: Path
) -> None:
    name, spoil = GARBAGE[kind]
    policy.save(tmp_path)
    policy.load(tmp_path)
    before = dict(policy.weights)
    spoil(tmp_path / name)
    with pytest.raises(CheckpointError, match=str(tmp_path / name)) as error:
        policy.load(tmp_path)
    assert len(str(error.value)) < 1000
    assert same_weights(policy.weights, before)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter in either form."""
    folder = tmp_path_factory.mktemp("adapters")
    qwen_like_tokenizer().save_pretrained(folder / "base")
    qwen(340).save_pretrained(folder / "base")
    lora_of(str(folder / "base")).save_pretrained(folder / "peft", selected_adapters=["default"])
    convert_adapter(folder / "peft", folder / "mlx")
    return folder


def spoilt(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


CONFIG = "adapter_config.json"
ADAPTERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "deep lists": ("peft", lambda f: (f / CONFIG).write_text("[" * 100_000)),
    "a rank of text": ("peft", lambda f: spoilt(f / CONFIG, r="8")),
    "alpha of text": ("peft", lambda f: spoilt(f / CONFIG, lora_alpha="x")),
    "parameters in a list": ("mlx", lambda f: spoilt(f / CONFIG, lora_parameters=[])),
    "no scale": ("mlx", lambda f: spoilt(f / CONFIG, lora_parameters={"rank": 8})),
    "weights of text": ("peft", lambda f: (f / "adapter_model.safetensors").write_text("a" * 99)),
    "a header of lists": (
        "mlx", lambda f: (f / "adapters.safetensors").write_bytes(
            (13).to_bytes(8, "little") + b'{"a": [1, 2]}'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_that_nobody_wrote_is_converted_into_one_line(
    kind: str, adapters: Path, tmp_path: Path
) -> None:
    form, spoil = ADAPTERS[kind]
    folder = shutil.copytree(adapters / form, tmp_path / "adapter")
    spoil(folder)
    with pytest.raises(ValueError) as refused:
        convert_adapter(folder, tmp_path / "new")
    assert len(str(refused.value)) < 1000
    assert not (tmp_path / "new").exists()
