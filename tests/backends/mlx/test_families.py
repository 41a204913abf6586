"""Families of models on MLX: as transformers computes them, or refused in one line."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from transformers import AutoModelForCausalLM, Gemma3TextConfig, MistralConfig

from tests.helpers.families import BATCH, IDS, TEXT, VOCAB, WIDE, build, save_family
from tests.helpers.mlx_tiny import mlx_policy_of, settings_of
from tests.helpers.tiny import full_logprobs, many_stops, plain_copy, sharpen
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.mlx import load
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.runs.instantiate import ConfigError


def without_window() -> Any:
    return AutoModelForCausalLM.from_config(MistralConfig(**WIDE, **IDS, sliding_window=None))


FAMILIES = {
    name: lambda name=name: build(name)
    for name in ("gemma3", "llama", "llama with biases", "olmo2", "phi3", "qwen3", "smollm2")
} | {"mistral": without_window}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_plays_scores_and_learns_as_transformers_computes_it(family: str) -> None:
    model = FAMILIES[family]()
    hf_model, policy = plain_copy(model), mlx_policy_of(model)
    before = policy.score(BATCH)
    for row, length in enumerate((24, 15)):
        expected = full_logprobs(hf_model, BATCH.ids[row, :length].tolist())
        trained = BATCH.trained[row, :length]
        np.testing.assert_allclose(before[row, :length][trained], expected[trained], atol=3e-4)
    engine = policy.engine()
    engine._stop_ids = many_stops(VOCAB, every=9)
    feeds = [list(range(10, 13)), list(range(20, 29)), list(range(40, 45))]
    uniforms = Draws(seed=3, step=0).uniforms(np.arange(3), 0, 6)
    answers = engine.complete(feeds, Sampling(max_tokens=6), uniforms)
    for feed, answer in zip(feeds, answers, strict=True):
        expected = full_logprobs(hf_model, [*feed, *answer.ids])[-len(answer.ids) :]
        np.testing.assert_allclose(answer.logprobs, expected, atol=3e-4)
    assert policy.update(BATCH, Grpo(beta=0.0))["update/skipped"] == 0.0
    assert np.abs(policy.score(BATCH) - before).max() > 1e-3


def test_the_scale_of_gemmas_embedding_is_not_rounded() -> None:
    config = Gemma3TextConfig(**{**TEXT, "hidden_size": 48})  # its root is no bfloat16 number
    model = sharpen(AutoModelForCausalLM.from_config(config), 4.0)
    scores = mlx_policy_of(model).score(BATCH)[0]
    expected = full_logprobs(model, BATCH.ids[0].tolist())
    trained = BATCH.trained[0]
    np.testing.assert_allclose(scores[trained], expected[trained], atol=3e-5)


def rewrite(file: Path, change: Any) -> None:
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("gpt2", r"one of gemma3, .* with backend=mlx, not gpt2"),
        ("mistral", "mlx-lm's mistral has no sliding window"),
    ],
)
def test_a_model_that_mlx_cannot_train_is_one_line(family, said, tmp_path):
    save_family(tmp_path, family)
    with pytest.raises(ConfigError, match=said) as error:
        load.load_model(settings_of(tmp_path), precision="fp32")
    assert str(error.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", [*FAMILIES, "qwen2", "gemma3_text"])
def test_another_activation_than_mlx_has_in_its_code_is_refused(family, tmp_path):
    file = save_family(tmp_path, family) / "config.json"
    config = json.loads(file.read_text())
    part = config.get("text_config", config)
    part |= dict.fromkeys(part.keys() & {"hidden_act", "hidden_activation"}, "relu2")
    part |= {"sliding_window": None} if family == "mistral" else {}
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"computes (silu|gelu_pytorch_tanh), .*=relu2"):
        load.load_model(settings_of(tmp_path), precision="fp32")


Q, ALL = ["self_attn.q_proj"], ["self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj"]
FAULTS = {
    "rank": (lambda c: c["lora_parameters"].update(rank=4), "cannot be loaded by mlx-lm"),
    "fewer keys": (lambda c: c["lora_parameters"].update(keys=Q), "incompatible tensors"),
    "more keys": (lambda c: c["lora_parameters"].update(keys=ALL), "belongs to another model"),
    "lost base": (lambda c: c.update(model=c["model"] + "3"), "base3 is no folder here"),
    "other base": (lambda c: c.update(model=c["model"] + "2"), "incompatible tensors"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_bad_adapter_is_one_line(kind, tmp_path):
    change, message = FAULTS[kind]
    folder = saved_adapter(tmp_path)
    model = AutoModelForCausalLM.from_config(MistralConfig(**{**WIDE, "hidden_size": 64}, **IDS))
    model.config.sliding_window = None
    model.save_pretrained(tmp_path / "base2")
    load.load_model(settings_of(folder), precision="fp32")
    rewrite(folder / "adapter_config.json", change)
    with pytest.raises(ConfigError, match=message) as error:
        load.load_model(settings_of(folder), precision="fp32")
    assert "\n" not in str(error.value)


def test_an_adapter_saved_in_bf16_learns_in_float32(tmp_path):
    model = load.load_model(settings_of(saved_adapter(tmp_path)), precision="bf16").model
    assert all(w.dtype == mx.float32 for _, w in tree_flatten(model.trainable_parameters()))


def saved_adapter(tmp_path: Path) -> Path:
    lora = LoraSettings(rank=3, alpha=6.0, targets=["q_proj", "v_proj"])
    bundle = load.load_model(
        settings_of(save_family(tmp_path / "base"), lora=lora), precision="fp32"
    )
    folder = tmp_path / "adapter"
    folder.mkdir()
    weights = tree_flatten(bundle.model.trainable_parameters())
    tensors = {name: weight.astype(mx.bfloat16) for name, weight in weights}
    mx.save_safetensors(str(folder / "adapters.safetensors"), tensors)
    (folder / "adapter_config.json").write_text(json.dumps(bundle.adapter))
    bundle.tokenizer.inner.save_pretrained(folder)
    return folder
