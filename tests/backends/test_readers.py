"""transformers 4.57 computes the same with what is written here: `pytest -m readers`, by pip."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import exports as made
from tests.helpers.families import build
from tests.helpers.tiny import policy_of, sharpen
from wordle_rl.commands.export import export

PINS = ["transformers==4.57.6", "huggingface-hub==0.36.0", "tokenizers==0.22.1"]
SCRIPT = """
import json, sys, torch, transformers; print(transformers.__version__)
from peft import PeftModel
from transformers import AutoModelForCausalLM as Model, AutoTokenizer
for place in sys.argv[1:]:
    names, ids = AutoTokenizer.from_pretrained(f"{place}/merged"), torch.arange(10, 60)[None]
    whole = Model.from_pretrained(f"{place}/merged")
    adapted = PeftModel.from_pretrained(Model.from_pretrained(f"{place}/base"), f"{place}/peft")
    logits = [model.eval()(ids).logits.detach().tolist() for model in (whole, adapted)]
    chat = names.apply_chat_template([{"role": "user", "content": "Guess."}], tokenize=False)
    print(json.dumps([logits, chat, names.encode("crane, slate")]))
"""
pytestmark = [pytest.mark.slow, pytest.mark.readers, pytest.mark.timeout(1200)]
pytestmark += [pytest.mark.usefixtures("quiet")]


def write(family, folder) -> None:
    """A model with a rotary base of its own, an adapter on it, and both merged."""
    model = build(family)
    rope = model.config.get_text_config().rope_parameters
    for part in rope.values() if family == "gemma3" else [rope]:
        part["rope_theta"] *= 30.0
    policy_of(sharpen(type(model)(model.config), 4.0)).machine.export(folder / "base")
    made.save_adapter(folder / "base", folder / "adapter")
    run = made.save_run(folder, folder / "adapter", f"model.path={folder / 'base'}", made.LORA)
    for form, options in ("merged", {"precision": "float32"}), ("peft", {}):
        export(str(run), format=form, output=str(folder / form), **options)  # pyright: ignore


def test_transformers_4_reads_what_transformers_5_reads(tmp_path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", "older", *PINS]
    if (result := subprocess.run(pip, cwd=tmp_path, capture_output=True, text=True)).returncode:
        pytest.skip(f"pip cannot download {PINS[0]}: {result.stderr.strip()[-200:]}")
    for family in (families := ["llama", "qwen2", "qwen3", "gemma3"]):
        write(family, tmp_path / family)
    path, call = {"PYTHONPATH": str(tmp_path / "older")}, [sys.executable, "-c", SCRIPT, *families]
    new_lines, old_lines = (
        subprocess.check_output(call, cwd=tmp_path, env=os.environ | variables).splitlines()
        for variables in ({}, path)
    )
    assert old_lines[0] == b"4.57.6" != new_lines[0] and len(new_lines) == 1 + len(families)
    for old_line, new_line in zip(old_lines[1:], new_lines[1:], strict=True):
        (logits, *names), (new_logits, *new_names) = json.loads(old_line), json.loads(new_line)
        assert names == new_names
        np.testing.assert_allclose(logits, new_logits, rtol=0, atol=1e-5)
