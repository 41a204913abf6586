"""Run folders with one checkpoint of a small model, as training would have left them."""

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from tests.helpers.configs import composed
from tests.helpers.families import IDS, VOCAB, WIDE, build
from tests.helpers.tiny import policy_of, qwen_like_tokenizer
from wordle_rl.backends.torch.load import add_lora
from wordle_rl.commands.build import resolve
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.config import keep_config
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training.lineage import write_stages

LORA = "model.lora={rank: 4, alpha: 6}"


def save_base(folder: Path, family: str) -> Path:
    """A bfloat16 model of a family with its tokenizer, as from the hub; `wider` is a Llama."""
    if family in ("gpt2", "wider"):
        torch.manual_seed(3)
        # With places for a whole prompt.
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024}
        llama = LlamaConfig(**{**WIDE, "hidden_size": 64}, **IDS)
        config = llama if family == "wider" else GPT2Config(vocab_size=VOCAB, **sizes, **IDS)
        model = AutoModelForCausalLM.from_config(config)
    else:
        model = build(family)
    model.to(torch.bfloat16).save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    return folder


def save_adapter(base: Path, folder: Path, size: float = 0.2) -> Path:
    """An adapter that changes what its base says, in PEFT's form. size: of its random weights."""
    base_model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = add_lora(base_model, LoraSettings(rank=4, alpha=6.0), seed=0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * size)
    policy_of(model).machine.export(folder)
    return folder


def save_run(root: Path, model: Path, *overrides: str) -> Path:
    """A run folder whose only checkpoint, of step 2, holds a copy of a model's folder."""
    run = RunFolder.create(root, "small")
    settings = ["words.test=6", "words.val=6", "sampling.max_tokens=12", "model.max_context=1024"]
    keep_config(run, resolve(composed(*settings, *overrides)))
    run.write_manifest(seeds={"seed": 0}, digests={}, command=["train.py", "prompt='letters'"])
    store = CheckpointStore(run.checkpoints)

    def write(folder: Path) -> None:
        shutil.copytree(model, folder / "model")
        write_stages(folder / "model", [{"run": "small", "start": "base", "protocol": "split"}])

    store.save(2, write)
    store.mark_best(2)
    run.set_status("finished")
    return run.path
