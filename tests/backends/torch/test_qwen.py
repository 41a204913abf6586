"""Qwen2.5's path on a small random Qwen2 with byte-level BPE and Qwen's chat template."""

import json
import warnings
from pathlib import Path

import pytest
import torch

from tests.helpers import tiny
from tests.helpers.configs import composed
from wordle_rl.commands.train import train
from wordle_rl.policy.tokenizer import HFTokenizer


@pytest.fixture(scope="module")
def small_qwen(tmp_path_factory) -> Path:
    """A local folder in the place of Qwen2.5-3B-Instruct."""
    folder = tmp_path_factory.mktemp("qwen")
    inner = tiny.qwen_like_tokenizer()
    model = tiny.qwen(len(inner), factor=1.0)
    # Every second token ends an answer: a random model would seldom draw the one that does.
    model.generation_config.eos_token_id = list(range(0, len(inner), 2))
    model.save_pretrained(folder)
    inner.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run_folder(small_qwen: Path, tmp_path_factory) -> Path:
    """Three GRPO steps of the documented command with model.path put in its place."""
    root = tmp_path_factory.mktemp("runs")
    args = [
        "model=qwen3b",
        "reward=phase2",
        f"model.path={small_qwen}",
        f"output_dir={root}",
        "trainer.steps=3",
        "algorithm.beta=0.04",
        "trainer.games_every=1",
        "num_generations=2",
        "rollout.groups=4",
        "words.test=6",
        "words.val=6",
        "sampling.max_tokens=24",
        "backend.precision=fp32",
        "model.max_context=2048",
        "logger=none",
        "optim.lr=1e-3",
    ]

    def read(_: HFTokenizer, ids: list[int]) -> str:
        # A random model writes no guesses, and without any no game is better than another.
        return f"<guess>{('crane', 'slate', 'moist')[ids[0] % 3]}</guess>"

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.filterwarnings("ignore", category=UserWarning)
        patch.setattr(HFTokenizer, "decode", read)
        train(composed(*args), args)
    [folder] = root.iterdir()
    return folder


def test_three_steps_train_only_the_adapter(run_folder: Path) -> None:
    manifest = json.loads((run_folder / "manifest.json").read_text())
    assert manifest["status"] == "finished" and manifest["prompt"] == "state prompt.think=true"
    assert not (run_folder / "model" / "model.safetensors").exists()
    config = json.loads((run_folder / "model" / "adapter_config.json").read_text())
    assert config["r"] == 32 and config["lora_alpha"] == 64


def test_the_base_is_held_in_bf16_and_the_adapter_in_fp32(small_qwen: Path) -> None:
    from wordle_rl.backends.torch.load import load_model
    from wordle_rl.policy.settings import LoraSettings, ModelSettings

    settings = ModelSettings(
        name="q",
        path=str(small_qwen),
        learning_rate=1e-3,
        max_tokens=8,
        max_context=128,
        lora=LoraSettings(rank=4, alpha=8.0),
    )
    model, _ = load_model(settings, precision="bf16", device="cpu")
    kinds = {"lora" in name: set() for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        kinds["lora" in name].add(parameter.dtype)
    assert kinds == {True: {torch.float32}, False: {torch.bfloat16}}
