"""Runs of pretrained models from the command line, on small random stand-ins."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from tests.helpers import tiny
from tests.helpers.configs import composed
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.torch.load import add_lora
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.train import train

SMALL = [
    "words.test=4", "words.val=4", "sampling.max_tokens=12", "backend.precision=fp32",
    "backend.accelerator=cpu", "backend.threads=1", "logger=none", "trainer.steps=1",
    "trainer.report=false", "trainer.show_games=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def small_qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    inner = tiny.qwen_like_tokenizer()
    model = tiny.qwen(len(inner), factor=1.0)
    # A random model would seldom draw the one token that ends an answer.
    model.generation_config.eos_token_id = list(range(0, len(inner), 2))
    model.save_pretrained(folder)
    inner.save_pretrained(folder)
    return folder


def trained(root: Path, *given: str) -> Path:
    """The folder of a run whose answers are read as guesses, whatever the model wrote."""

    def read(_: HFTokenizer, ids: list[int]) -> str:
        return f"<guess>{('crane', 'slate', 'moist')[ids[0] % 3]}</guess>" if ids else ""

    overrides = [*given, *SMALL, f"output_dir={root}"]
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.filterwarnings("ignore", category=UserWarning)
        patch.setattr(HFTokenizer, "decode", read)
        train(composed(*overrides), overrides)
    [folder] = root.iterdir()
    return folder


def test_the_set_up_on_a_mac_is_as_the_earlier_project_had_it() -> None:
    config: dict[str, Any] = resolve(composed("experiment=qwen1.5b_mac"))
    setup = build_experiment(config)
    assert setup.model.path == "Qwen/Qwen2.5-1.5B-Instruct" and setup.model.lora is not None
    assert (setup.model.lora.rank, setup.model.lora.alpha) == (8, 16)
    rollout = setup.recipe.rollout
    assert (rollout.num_generations, rollout.groups, len(setup.recipe.secrets)) == (2, 4, 100)
    assert setup.trainer.steps * rollout.groups == 3 * 100
    assert config["optim"]["lr"] == 5e-6


def test_the_set_up_on_a_server_is_as_the_earlier_project_had_it() -> None:
    config: dict[str, Any] = resolve(composed("experiment=qwen3b_server"))
    setup = build_experiment(config)
    assert setup.model.path == "Qwen/Qwen2.5-3B-Instruct" and setup.model.lora is not None
    assert (setup.model.lora.rank, setup.model.lora.alpha) == (32, 64)
    assert setup.model.quantize == "4bit"
    rollout = setup.recipe.rollout
    assert (rollout.num_generations, rollout.groups) == (8, 2 * 16)
    epochs = setup.trainer.steps * rollout.groups / len(setup.recipe.secrets)
    assert epochs == pytest.approx(3, abs=0.02)
    assert config["optim"]["lr"] == 1e-5


def test_adapters_of_the_set_up_on_a_mac_have_the_weights_that_were_counted_there() -> None:
    lora = build_experiment(resolve(composed("experiment=qwen1.5b_mac"))).model.lora
    assert lora is not None
    # The sizes in the config.json of Qwen2.5-1.5B-Instruct.
    config = Qwen2Config(
        vocab_size=151_936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
        num_attention_heads=12, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("meta"):
        model: Any = add_lora(Qwen2ForCausalLM(config), lora, seed=0)
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    assert sum(weight.numel() for weight in weights.values()) == 1_089_536


@pytest.mark.parametrize(
    "given",
    [
        ["experiment=qwen1.5b_mac"],
        ["experiment=qwen3b_server", "rollout.groups=2", "model.quantize=null"],
    ],
)
def test_the_set_ups_of_the_earlier_project_run(
    given: list[str], small_qwen: Path, tmp_path: Path
) -> None:
    folder = trained(tmp_path, *given, f"model.path={small_qwen}")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished" and manifest["revision"] == "main"
    last = load_file(folder / "checkpoints" / "step_000001" / "model" / "adapter_model.safetensors")
    assert max(w.abs().max().item() for name, w in last.items() if "lora_B" in name) > 0
    adapter = json.loads((folder / "model" / "adapter_config.json").read_text())
    assert sorted(adapter["target_modules"]) == ["q_proj", "v_proj"]


def test_a_base_model_trains_with_a_plain_template_and_the_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "base"
    inner = tiny.qwen_like_tokenizer(None)
    config = GPT2Config(
        vocab_size=len(inner), n_embd=32, n_layer=2, n_head=4, n_positions=1024,
        eos_token_id=inner.eos_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(base)
    inner.save_pretrained(base)
    assert not (base / "chat_template.jinja").exists()
    (tmp_path / "runs").mkdir()
    folder = trained(
        tmp_path / "runs", "model=gpt2", f"model.path={base}", "rollout.groups=2",
        "num_generations=2",
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    [said] = [line for line in lines if "no chat template" in line]
    assert said.startswith("the model has no chat template, as base models: ")
    assert said in json.loads((folder / "manifest.json").read_text())["computing"]["reasons"]
    assert (folder / "model" / "chat_template.jinja").is_file()
