"""Configs of known models without a network, checked by the parameters that are published."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from tests.helpers.tiny import lora_of, policy_of
from wordle_rl.backends import model_configs
from wordle_rl.backends.model_configs import KNOWN, build_config, find_config
from wordle_rl.backends.torch.planned_model import PlannedModel
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import LoraSettings, ModelSettings

# Sources: "Model size" on each model's page at huggingface.co, and for Qwen3-1.7B its 2,031,739,904
# less the head, 151,936 x 2,048, which the file repeats and the model shares with the embedding.
PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "google/gemma-3-1b-it": 999_885_952,
    "google/gemma-3-4b-it": 4_300_079_472,
    "openai-community/gpt2": 124_439_808,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(location: str) -> None:
        raise AssertionError(f"asks the network for {location}")

    monkeypatch.setattr(model_configs, "notice_offline", refuse)


def settings(path: str, **fields: object) -> ModelSettings:
    return ModelSettings(
        name="known", path=path, learning_rate=1e-5, max_tokens=8, max_context=512, **fields
    )  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_known_model_has_the_published_number_of_parameters(name):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(build_config(name))
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]


def test_every_known_model_is_checked_or_shares_the_facts_of_one_that_is():
    checked = [KNOWN[name] for name in PUBLISHED]
    for facts in KNOWN.values():
        assert {k: v for k, v in facts.items() if k != "quantization"} in checked


def test_adapters_of_rank_8_on_queries_and_values_of_the_1_5b_model():
    lora = LoraSettings(rank=8, alpha=16, targets=["q_proj", "v_proj"])
    model = PlannedModel(
        settings("Qwen/Qwen2.5-1.5B-Instruct", lora=lora), place="cuda", precision="bf16"
    )
    kept = model.keep(Optim(), reference=True)
    assert kept.trained == 1_089_536
    assert kept.parameters == PUBLISHED["Qwen/Qwen2.5-1.5B-Instruct"]
    assert kept.weights == 2 * kept.parameters
    assert kept.optimizer == 2 * kept.adapters == 2 * kept.reference == 8 * kept.trained


def test_a_folder_comes_before_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    Qwen2Config(num_hidden_layers=3).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    config, lora = find_config(settings(str(tmp_path)))
    assert (config.num_hidden_layers, lora) == (3, None)


def test_an_adapter_brings_its_model_and_its_own_form(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    policy_of(lora_of(model_folder, rank=3)).export(tmp_path)
    config, lora = find_config(settings(str(tmp_path)))
    assert config.num_hidden_layers == 2
    assert lora is not None and (lora.rank, lora.alpha) == (3, 6.0)
