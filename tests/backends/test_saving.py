"""What is written for transformers says the same in the form that older readers know."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Phi3Config, Qwen2Config

from tests.helpers.families import CONFIGS, IDS, WIDE, build, save_family
from tests.helpers.mlx_tiny import settings_of
from tests.helpers.tiny import (
    full_logprobs,
    gemma_like_tokenizer,
    policy_of,
    qwen_like_tokenizer,
    sharpen,
)
from wordle_rl.backends.mlx import load as mlx_models
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.backends.mlx.save import merge_model as mlx_merge
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.backends.torch.load import load_model
from wordle_rl.backends.torch.load import merge_model as torch_merge
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.instantiate import ConfigError

_TURNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama3": (LlamaConfig, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "yarn": (Qwen2Config, {"factor": 4.0}),
    "longrope": (Phi3Config, {"short_factor": [1.5] * 4, "long_factor": [3.0] * 4}),
    "default": (Phi3Config, {"partial_rotary_factor": 0.5}),
}
IDS_READ = list(range(10, 40))


def build_model(kind: str) -> Any:
    """A model whose rotations an older reader must not guess."""
    if kind in CONFIGS:
        model = build(kind)
        rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
        for entry in (rope, *(part for part in rope.values() if isinstance(part, dict))):
            if (
                "rope_theta" in entry and kind != "olmo3"
            ):  # of whose older form transformers 5 loses it
                entry["rope_theta"] *= 30.0
        return sharpen(type(model)(model.config), 4.0).eval()
    family, fields = _TURNS[kind]
    limits = {"original_max_position_embeddings": 64} if kind != "default" else {}
    rope = {"rope_type": kind, "rope_theta": 1e5, **fields, **limits}
    config = family(**WIDE, **IDS, **(limits if kind == "longrope" else {}), rope_parameters=rope)
    return sharpen(AutoModelForCausalLM.from_config(config), 4.0).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [*CONFIGS, *_TURNS])
def test_a_reader_of_the_older_form_computes_the_same(kind: str, tmp_path: Path) -> None:
    model = build_model(kind)
    expected = full_logprobs(model, IDS_READ)
    policy_of(model).machine.export(tmp_path)
    modes = {file.name: oct(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert len({*modes.values()}) == 1, modes
    assert np.abs(full_logprobs(read(tmp_path), IDS_READ) - expected).max() < 1e-5
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    parts = [config, config.get("text_config", {})]
    assert kind == "gpt2" or any(part.pop("rope_parameters", None) for part in parts)
    file.write_text(json.dumps(config))
    assert np.abs(full_logprobs(read(tmp_path), IDS_READ) - expected).max() < 1e-5


def read(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", _TURNS)
def test_mlx_rotates_as_transformers_does_or_says_that_it_cannot(kind: str, tmp_path: Path) -> None:
    model = build_model(kind)
    policy_of(model).machine.export(tmp_path)
    if kind == "longrope":
        with pytest.raises(ConfigError, match="mlx-lm's phi3 rotates otherwise than longrope says"):
            mlx_models.load_base(tmp_path)
        return
    network, _ = mlx_models.load_base(tmp_path)
    logits = np.array(network(mx.array([IDS_READ])))[0]
    logprobs = torch.from_numpy(logits).log_softmax(-1)[range(len(IDS_READ) - 1), IDS_READ[1:]]
    assert np.abs(logprobs.numpy() - full_logprobs(model, IDS_READ)[1:]).max() < 1e-4


@pytest.mark.parametrize("make", [build_tokenizer, qwen_like_tokenizer, gemma_like_tokenizer])
def test_a_tokenizer_names_a_class_of_both_generations(make: Any, tmp_path: Path) -> None:
    inner = make()
    policy_of(build("llama"), HFTokenizer(inner)).machine.export(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] in ("PreTrainedTokenizerFast", "Qwen2Tokenizer")
    text = "Guess. <guess>crane</guess>"
    assert AutoTokenizer.from_pretrained(tmp_path).encode(text) == inner.encode(text)


# -- how a reader draws ---------------------------------------------------------------------------

PENALTY = {"do_sample": True, "repetition_penalty": 1.5, "top_k": 20, "top_p": 0.8}
PENALTY |= {"temperature": 0.7, "bos_token_id": 1}


def torch_export(base: Path, target: Path) -> None:
    network, tokenizer = load_model(settings_of(base), precision="fp32", device="cpu")
    policy_of(network, tokenizer).machine.export(target)


def mlx_export(base: Path, target: Path) -> None:
    bundle = mlx_models.load_model(settings_of(base), precision="fp32")
    Policy(MlxMachine(bundle, optim=Optim())).machine.export(target)


WRITERS: dict[str, Any] = {
    "a run on torch": torch_export,
    "a run on MLX": mlx_export,
    "merged": lambda base, target: torch_merge(base, target, "float32"),
    "for mlx-lm": lambda base, target: mlx_merge(base, target, "float32"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("writer", WRITERS)
def test_a_reader_draws_the_likeliest_tokens_whatever_the_base_says(writer, tmp_path):
    base, target = save_family(tmp_path / "base", "llama"), tmp_path / "written"
    (base / "generation_config.json").write_text(json.dumps(PENALTY | {"eos_token_id": 339}))
    WRITERS[writer](base, target)
    config = json.loads((target / "generation_config.json").read_text())
    ends = [qwen_like_tokenizer().eos_token_id, 339]
    assert config.pop("pad_token_id", 0) == 0  # of config.json
    assert config == {"bos_token_id": 1, "eos_token_id": ends}
    model, ids = read(target), [*range(10, 15)] * 4  # a penalty would forbid what stands here
    drawn = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()
    expected = ids
    while len(expected) < len(drawn):
        with torch.no_grad():
            logits = model(torch.tensor([expected])).logits[0, -1]
        expected = [*expected, int(logits.argmax())]
    assert drawn == expected and len(drawn) > len(ids)
