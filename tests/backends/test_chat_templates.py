"""Which chat template a loaded model has: its own, the one it was taught with, or a plain one."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

from tests.backends.test_gate import LOADERS, on_each_backend
from tests.helpers.exports import save_adapter
from tests.helpers.families import build
from tests.helpers.tiny import gemma_like_tokenizer, qwen_like_tokenizer
from wordle_rl.backends.adapters import convert_adapter
from wordle_rl.policy.tokenizer import PLAIN_TEMPLATE, HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.runs.paths import ROOT

PLAIN = "User:\nhello\n\nAssistant:\n"


def tokenizer_of(bundle: Any) -> HFTokenizer:
    return bundle[1] if isinstance(bundle, tuple) else bundle.tokenizer


def save_base_model(folder: Path) -> Path:
    """As Gemma's: its tokenizer begins a text with <bos>, and there is no template."""
    build("llama").save_pretrained(folder)
    inner = copy.deepcopy(gemma_like_tokenizer())
    inner.chat_template = None
    inner.save_pretrained(folder)
    return folder


@on_each_backend
def test_a_base_model_reads_what_its_tokenizer_begins_with(backend, tmp_path):
    tokenizer = tokenizer_of(LOADERS[backend](save_base_model(tmp_path / "base")))
    ids = Chat(tokenizer).opening(None, "hello")
    assert tokenizer.inner.decode(ids) == f"<bos>{PLAIN}"
    assert ids.count(tokenizer.inner.bos_token_id) == 1
    assert ids == tokenizer.inner(PLAIN).input_ids
    assert len(tokenizer.notes) == 1


def test_a_tokenizer_that_begins_with_nothing_gets_nothing():
    inner = copy.deepcopy(qwen_like_tokenizer())
    inner.chat_template, inner.bos_token = None, "<|endoftext|>"  # which it never writes
    assert inner.decode(Chat(HFTokenizer(inner)).opening(None, "hello")) == PLAIN


@on_each_backend
def test_an_adapter_is_asked_with_the_template_of_its_folder(backend, tmp_path):
    adapter = save_adapter(save_base_model(tmp_path / "base"), tmp_path / "peft")
    for file in adapter.glob("*token*"):
        file.unlink()
    shutil.copy(ROOT / "research/adapters/gemma270m_sft/chat_template.jinja", adapter)
    if backend == "mlx":
        convert_adapter(adapter, tmp_path / "mlx")
        adapter = tmp_path / "mlx"
    tokenizer = tokenizer_of(LOADERS[backend](adapter))
    assert tokenizer.inner.decode(Chat(tokenizer).opening(None, "hello")) == PLAIN
    # As it was taught: what was the plain template then.
    assert tokenizer.inner.chat_template == PLAIN_TEMPLATE and not tokenizer.notes


@on_each_backend
def test_a_template_that_a_processor_keeps_apart_is_read(backend, tmp_path):
    base = save_base_model(tmp_path / "base")
    template = gemma_like_tokenizer().chat_template
    (base / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    tokenizer = tokenizer_of(LOADERS[backend](base))
    assert tokenizer.inner.chat_template == template and not tokenizer.notes
