"""Configs of known models without a network, checked by the parameters that are published."""

from __future__ import annotations

import socket

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, OPTConfig, Phi3Config, Qwen2Config

from tests.helpers.families import CONFIGS, IDS, WIDE, build
from tests.helpers.tiny import lora_of, policy_of
from wordle_rl.backends.tiny_model import build_untrained
from wordle_rl.backends.torch import model_configs
from wordle_rl.backends.torch.adapters import add_lora
from wordle_rl.backends.torch.model_configs import KNOWN, build_config, find_config
from wordle_rl.backends.torch.planned_model import PlannedModel
from wordle_rl.policy.memory_plan import GameSize
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.runs.instantiate import ConfigError

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
        **{
            "name": "known",
            "path": path,
            "learning_rate": 1e-5,
            "max_tokens": 8,
            "max_context": 512,
            **fields,
        }
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


@pytest.mark.parametrize("vocabulary", ["letters", "words"])
def test_the_config_of_an_untrained_model_is_the_one_that_is_built(vocabulary):
    shape = {"hidden_size": 8, "layers": 1, "heads": 2, "kv_heads": 1, "intermediate_size": 8}
    shape |= {"vocabulary": vocabulary}
    found, _ = find_config(settings("untrained", shape=shape))
    built, tokenizer = build_untrained(**shape)
    assert found.to_dict() == built.config.to_dict()
    assert found.vocab_size == len(tokenizer)


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


def test_4_bit_keeps_the_precision_of_embedding_head_and_norms(tmp_path, monkeypatch):
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    Qwen2Config(
        vocab_size=500, hidden_size=64, intermediate_size=1024, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2,
    ).save_pretrained(tmp_path)  # fmt: skip
    (tmp_path / "model.safetensors").touch()
    plain, rounded = (
        PlannedModel(
            settings(str(tmp_path), lora=LoraSettings(), quantize=quantize),
            place="cuda", precision="bf16",
        )
        for quantize in (None, "4bit")
    )  # fmt: skip
    before, after = (model.keep(Optim(), reference=False) for model in (plain, rounded))
    # Queries, keys, values, output, gate, up and down of each layer.
    matrices = 3 * 64 * (64 + 2 * 32 + 64 + 3 * 1024)
    # 4 bits each, 8 bits for a block of 64, and 32 bits for 256 blocks (arXiv 2305.14314).
    bits = 4 + 8 / 64 + 32 / (64 * 256)
    assert after.weights == round(before.weights - 2 * matrices + matrices * bits / 8)
    assert (after.adapters, after.parameters) == (before.adapters, before.parameters)
    game = GameSize(opening=20, feed=5, whole=60, trained=20)
    largest = 64 * 1024 * 2  # is unpacked to be multiplied
    assert rounded.learn(game, 60).backward - plain.learn(game, 60).backward == largest
    assert rounded.play(game, 2).states.fixed - plain.play(game, 2).states.fixed == largest


@pytest.mark.parametrize("revision", ["main", "v2"])
def test_the_config_of_the_wanted_revision_is_read(revision, monkeypatch):
    asked = []

    def find_cached(location: str, wanted: str) -> None:
        asked.append((location, wanted))

    def read(settings: ModelSettings, base: str, wanted: str) -> str:
        return f"{base} at {wanted}"

    monkeypatch.setattr(model_configs, "_find_cached", find_cached)
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    monkeypatch.setattr(model_configs, "read_config", read)
    config, _ = find_config(settings("Qwen/Qwen2.5-3B-Instruct", revision=revision))
    if revision == "main":
        assert asked == [("Qwen/Qwen2.5-3B-Instruct", "main")] and config.hidden_size == 2048
    else:
        assert config == "Qwen/Qwen2.5-3B-Instruct at v2"


def test_a_cached_config_is_read_without_asking_the_hub(tmp_path, monkeypatch):
    name, commit = "Qwen/Qwen2.5-3B-Instruct", "a" * 40
    place = tmp_path / "models--Qwen--Qwen2.5-3B-Instruct"
    Qwen2Config(num_hidden_layers=3).save_pretrained(place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    # Any request fails: the fixture's, and those of the hub's library.
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("asks the network"))
    config, _ = find_config(settings(name))
    assert config.num_hidden_layers == 3


def test_a_config_that_cannot_be_trained_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    OPTConfig().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match=r"must have one of the architectures .*, not opt"):
        find_config(settings(str(tmp_path)))


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_is_planned_as_it_is_loaded(family, tmp_path, monkeypatch):
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    model = build(family)
    count = sum(p.numel() for p in model.parameters())
    model.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    lora = LoraSettings(rank=3)
    real = add_lora(model, lora, 0)
    chosen = settings(str(tmp_path), lora=lora, max_context=64)
    planned = PlannedModel(chosen, place="cuda", precision="fp32")
    kept = planned.keep(Optim(), reference=False)
    assert kept.parameters == count
    assert kept.trained == sum(p.numel() for p in real.parameters() if p.requires_grad)
    game = GameSize(opening=20, feed=5, whole=60, trained=20)
    plain, lean = (planned.learn(game, 240, checkpointing=again) for again in (False, True))
    assert 0 < lean.activations < plain.activations / 2
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    token = 2 * config.num_hidden_layers * heads * 8 * 4  # bytes; all heads have 8 numbers
    assert planned.play(game, 4).keys_values.each == 64 * token


def test_rotations_for_long_texts_are_planned(tmp_path, monkeypatch):
    monkeypatch.setattr(model_configs, "notice_offline", lambda location: None)
    factors = [1.0] * 4
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": factors,
            "long_factor": factors, "original_max_position_embeddings": 128}  # fmt: skip
    config = Phi3Config(**WIDE, **IDS, rope_parameters=rope)  # pyright: ignore[reportArgumentType]
    config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    planned = PlannedModel(settings(str(tmp_path), max_context=100), place="cuda", precision="fp32")
    game = GameSize(opening=20, feed=5, whole=60, trained=20)
    assert planned.learn(game, 60).activations > 0 < planned.play(game, 2).at(2)


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
