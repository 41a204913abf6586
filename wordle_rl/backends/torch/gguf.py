"""Turns a GGUF file with a Llama into a plain folder: safetensors, tokenizer and chat template."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from wordle_rl.runs.errors import full_disk
from wordle_rl.runs.instantiate import ConfigError

# What transformers notes about the file. With it, save_pretrained refuses.
_OF_THE_FILE = ("quantization_config", "dtype", "architectures", "model_type")


def convert_gguf(file: Path, folder: Path) -> int:
    """Write the model of a GGUF file to a folder, in bfloat16. Returns the number of its weights.

    Raises ConfigError in one line when the file cannot be read, or holds another architecture.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    try:
        with redirect_stderr(io.StringIO()):  # a progress bar of the reader's own
            found: Any = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.float32
            )
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except Exception as error:  # the reader raises all kinds for bad files
        if full_disk(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{file.name} cannot be read as GGUF ({reason})") from error
    if not isinstance(found, LlamaForCausalLM):
        raise ConfigError(f"{file.name} must hold a Llama, not a {type(found).__name__}")
    known = found.config.to_dict()
    kept = {k: v for k, v in known.items() if k not in _OF_THE_FILE and not k.startswith("_")}
    model: Any = LlamaForCausalLM(LlamaConfig(**kept))
    model.load_state_dict(found.state_dict())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def check_whole(folder: Path) -> None:
    """Raise ConfigError if weights in a folder are damaged. Compares headers with lengths."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "np"):
                pass
        except (SafetensorError, OSError) as error:
            raise ConfigError(
                f"{file} is damaged ({error}): remove {folder} and run this again"
            ) from error
