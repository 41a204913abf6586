"""What a user sees of memory plans: the command, the lines before a run, and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import SMALL_RUN, training
from tests.helpers.configs import composed
from tests.helpers.tiny import qwen, qwen_like_tokenizer
from wordle_rl.backends import sizes
from wordle_rl.backends.memory import GB, settle_memory
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.memory import memory
from wordle_rl.runs.instantiate import ConfigError


@pytest.fixture(scope="module")
def slim(tmp_path_factory) -> str:
    """A folder with the config of Qwen2.5-3B, but four layers. A plan reads no weights."""
    folder: Path = tmp_path_factory.mktemp("slim")
    config = {
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 2048,
        "intermediate_size": 11_008, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()
    return f"model.path={folder}"


@pytest.fixture(autouse=True)
def plan_small_models(monkeypatch):
    monkeypatch.setattr(sizes, "_LARGE", 0)


def setup(*overrides: str) -> Any:
    return build_experiment(resolve(composed("model=qwen3b", *overrides)))


def settle(*overrides: str, gb: float) -> Any:
    return settle_memory(setup(*overrides), "cuda", "bf16", gb * GB)


def test_the_command_prints_a_table_for_each_backend(capsys):
    memory(["model=qwen3b", "num_generations=2,8"])
    out = capsys.readouterr().out
    assert re.findall(r"on (torch|MLX) in bf16", out) == ["torch", "MLX"]
    assert len(re.findall(r"num_generations=2 +num_generations=8", out)) == 2
    assert len(re.findall(r"^bytes of a token's keys, values +36,864 +36,864$", out, re.M)) == 2
    assert "59,867,136 trained" in out and re.search(r"^fits 16 GB +\d+ games, check", out, re.M)
    memory(["model=qwen1.5b", "backend=mlx"])
    assert "28,672" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"^rollout.num_generations must be"):
        memory(["model=qwen3b", "num_generations=0"])


def test_a_run_that_cannot_play_names_the_number_of_games(slim):
    with pytest.raises(ConfigError, match=r"GB may be used: choose rollout.games_at") as error:
        settle(slim, gb=10)
    found = re.search(r"choose rollout.games_at_once=(\d+)", str(error.value))
    assert found
    games = int(found[1])
    # What the line advises fits, and one group more does not.
    chosen = settle(slim, "rollout.games_at_once=auto", gb=10)
    assert chosen.recipe.rollout.games_at_once == games and games % 8 == 0
    with pytest.raises(ConfigError, match=rf"choose rollout.games_at_once={games}"):
        settle(slim, f"rollout.games_at_once={games + 8}", gb=10)
    few = settle(slim, "rollout.games_at_once=auto", "rollout.groups=4", gb=80)
    assert few.recipe.rollout.games_at_once == 32
    large = ["rollout.groups=1", "rollout.num_generations=512", "rollout.games_at_once=auto"]
    with pytest.raises(ConfigError, match=r"choose rollout.num_generations=\d+"):
        settle(slim, *large, gb=10)


def test_a_run_on_a_pretrained_model_begins_with_its_plan(tmp_path, capsys):
    folder = tmp_path / "base"
    qwen(340).save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    line = SMALL_RUN.partition("algorithm=")[2]
    common = f"model=micro model.path={folder} algorithm={line} output_dir={tmp_path}"
    training(f"{common} backend.micro_batch_tokens=auto rollout.games_at_once=auto")()
    out = capsys.readouterr().out
    assert out.index("memory plan for") < out.index("parameters") and "in validation" in out
    with pytest.raises(SystemExit) as end:
        training(f"{common} trainer.memory_limit_gb=0.0001")()
    assert end.value.code == 2
    assert re.search(r"error: .* 0.0 GB may be used", capsys.readouterr().err)
