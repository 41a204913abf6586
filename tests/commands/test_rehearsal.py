"""The headline command on a small random model with the vocabulary of Qwen2.5-3B.

Every stage runs as a command of its own: plan, imitation, reinforcement with gradient checkpointing
and rollouts in portions, resume, export, evaluation.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.helpers.tiny import qwen_like_tokenizer
from wordle_rl.runs.paths import ROOT

SMALL = [
    "experiment=none", "rollout.groups=4", "words.test=8", "words.val=8", "trainer.report=false",
    "trainer.show_games=0", "backend.gradient_checkpointing=true", "backend.threads=1",
    "backend.precision=bf16", "logger=none",
]  # fmt: skip
LIBRARIES = 1.0  # GB that Python, torch and transformers take, which the plan does not count


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like Qwen2.5-3B, with four layers, 256 numbers a token and random weights."""
    folder = tmp_path_factory.mktemp("stand_in")
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=151_936, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, intermediate_size=1_376, tie_word_embeddings=True,
            max_position_embeddings=32_768, rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        )
    )  # fmt: skip
    model.to(torch.bfloat16).save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    return folder


def command(*arguments: str) -> str:
    """What a command printed. Fails unless it ended well."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def folder_of(printed: str) -> Path:
    [folder] = set(re.findall(r"^run folder: (.+)$", printed, re.M))
    return Path(folder)


def assert_within_plan(printed: str, folder: Path) -> None:
    [planned] = re.findall(r"^memory plan: ([0-9.]+) GB", printed, re.M)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    resident = max(json.loads(line)["memory/resident_gb"] for line in lines[1:])
    print(f"planned {planned} GB of tensors, resident {resident:.2f} GB")
    assert resident < float(planned) + LIBRARIES


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_stages_of_the_headline_run_on_a_stand_in(stand_in: Path, tmp_path: Path) -> None:
    planned = command("-m", "wordle_rl", "memory", "model=qwen3b", "reward=phase2")
    assert "3,085,938,688" in planned  # the weights of the real model
    common = [f"output_dir={tmp_path}", *SMALL]
    printed = command(
        "train.py", "model=qwen3b", f"model.path={stand_in}", "algorithm=distill",
        "algorithm.player=random_consistent", "reward=win_only", "num_generations=1",
        "prompt=spelled", "sampling.max_tokens=32", "trainer.steps=3", *common,
    )  # fmt: skip
    taught = folder_of(printed)
    assert_within_plan(printed, taught)
    printed = command(
        "train.py", "reward=phase2", f"init_from={taught}", "num_generations=4",
        "sampling.max_tokens=32", "rollout.games_at_once=8", "trainer.steps=2", *common,
    )  # fmt: skip
    played = folder_of(printed)
    assert_within_plan(printed, played)
    command("train.py", f"resume={played}", "trainer.steps=3")
    steps = [json.loads(s)["step"] for s in (played / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3]
    summary = json.loads((played / "summary.json").read_text())
    assert summary["total_games"] == 3 * 4 * 4
    # In bfloat16 the sums would lose most of what so few steps changed, and export refuses that.
    command(
        "-m", "wordle_rl", "export", str(played), "--format", "merged", "--checkpoint", "last",
        "--precision", "float32", "--output", str(tmp_path / "merged"),
    )  # fmt: skip
    command(
        "eval.py", f"model.path={tmp_path / 'merged'}", "model=qwen3b", "prompt=spelled",
        "limit=4", "compare=false", "sampling.max_tokens=32", "backend.threads=1",
        f"output_dir={tmp_path}",
    )  # fmt: skip
