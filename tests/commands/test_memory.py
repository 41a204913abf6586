"""What a user sees of memory plans: the command, the lines before a run, and refusals."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.helpers.commands import SMALL_RUN, training
from tests.helpers.configs import composed
from tests.helpers.tiny import qwen, qwen_like_tokenizer
from wordle_rl.backends import memory as memory_plan
from wordle_rl.backends import sizes
from wordle_rl.backends.memory import GB, plan_memory, settle_memory
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.memory import memory
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT


@pytest.fixture(scope="module")
def slim(tmp_path_factory) -> str:
    """A folder with the config of Qwen2.5-3B, but four layers. A plan reads no weights."""
    folder: Path = tmp_path_factory.mktemp("slim")
    config = {
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").touch()
    return f"model.path={folder}"


@pytest.fixture(autouse=True)
def plan_small_models(monkeypatch):
    monkeypatch.setattr(sizes, "_LARGE", 0)


GROUPS = ["rollout.groups=64"]  # more than fits at once


def setup(*overrides: str) -> Any:
    return build_experiment(resolve(composed("model=qwen3b", *GROUPS, *overrides)))


def settle(*overrides: str, gb: float) -> Any:
    return settle_memory(setup(*overrides), "cuda", "bf16", gb * GB)


def test_the_command_prints_a_column_for_each_value(capsys):
    memory(["model=qwen3b", *GROUPS, "num_generations=2,8"])
    out = capsys.readouterr().out
    assert re.search(r"59,867,136 trained numbers, on cuda in bf16", out)
    assert re.search(r"num_generations=2 +num_generations=8", out)
    assert re.search(r"^tokens of a game, of a micro-batch +2,\d+, 4,096 +2,\d+, 4,096$", out, re.M)
    assert re.search(r"^fits at once on +\d+ GB +\d+ GB$", out, re.M)
    assert re.search(r"^fits in parts on +\d+ GB +\d+ GB$", out, re.M)
    experiment = settle("num_generations=8", gb=24)
    games, tokens = experiment.recipe.rollout.games_at_once, experiment.backend.micro_batch_tokens
    assert re.search(rf"^on 24 GB: .* {games}, \d+, {tokens:,}$", out, re.M)
    memory(["model=Qwen/Qwen2.5-1.5B-Instruct", "backend=mlx"])
    out = capsys.readouterr().out
    assert "on mlx in bf16" in out and "GB are free" in out
    memory(["model=qwen3b", "algorithm=dpo", "algorithm.reference=Qwen/Qwen2.5-1.5B-Instruct"])
    assert re.search(r"^reference +3\.09$", capsys.readouterr().out, re.M)  # 1.54 * 10**9 weights
    with pytest.raises(ConfigError, match=r"^rollout.num_generations must be"):
        memory(["model=qwen3b", "num_generations=0"])


def test_what_changes_no_game_is_chosen_and_said(capsys):
    experiment = settle("model=Qwen/Qwen2.5-1.5B-Instruct", gb=24)  # as a user begins
    line = re.search(r"chosen so that it fits: (.*)", capsys.readouterr().out)
    assert line
    model = "model=Qwen/Qwen2.5-1.5B-Instruct"
    compose_config("config", [model, *line[1].split()])  # and Hydra takes them as they are printed
    repeat = settle(model, *line[1].split(), gb=24)
    assert (repeat.backend, repeat.model) == (experiment.backend, experiment.model)
    assert repeat.recipe.rollout == experiment.recipe.rollout
    assert "chosen" not in capsys.readouterr().out
    assert experiment.recipe.rollout.games_at_once in range(8, 512, 8)
    other = settle("model=qwen3b", gb=16)
    assert other.backend.gradient_checkpointing and other.model.games_at_once < 200
    assert other.config == setup().config  # what a resumed run begins with
    assert settle("backend.micro_batch_tokens=16384", gb=80).backend.micro_batch_tokens == 8192
    plan = plan_memory(settle(gb=141), "cuda", "bf16")  # micro-batches fill at most half of a GPU
    double = replace(plan, micro_batch_tokens=2 * plan.micro_batch_tokens)
    assert plan.peak_learning <= 0.46 * 141 * GB < double.peak_learning


def test_a_set_up_fits_its_machine_and_spends_most_on_learning(capsys, monkeypatch):
    experiment = build_experiment(resolve(composed("experiment=gemma4b_mac")))
    monkeypatch.setattr(memory_plan, "measure_memory", lambda: 48 * GB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=46 * GB))
    result = settle_memory(experiment, "mlx", "bf16", 48 * GB)
    assert (result.backend, result.model) == (experiment.backend, experiment.model)
    assert "chosen" not in capsys.readouterr().out
    # beside other programs it takes what they leave, if that is enough
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20 * GB))
    compromise = settle_memory(experiment, "mlx", "bf16", 48 * GB)
    backend = replace(experiment.backend, gradient_checkpointing=True)
    assert compromise.backend == backend  # one game of six answers, learnt at once, takes 24 GB
    assert "GB are free\n" in capsys.readouterr().out
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=GB))
    assert settle_memory(experiment, "mlx", "bf16", 48 * GB) == result
    assert "it would swap" in capsys.readouterr().out
    trainer, rollout = experiment.trainer, experiment.recipe.rollout
    guesses = trainer.steps * rollout.groups * rollout.num_generations * 6
    validations = 1 + -(-trainer.steps // trainer.validate_every)
    games = validations * len(experiment.validation) + 2 * (trainer.report_limit or 64)
    head = (ROOT / "conf/experiment/gemma4b_mac.yaml").read_text()
    assert f"from at most {guesses:,} guesses, and {games} games judge it" in head.replace(
        "\n# ", " "
    )
    assert guesses > games * 6


def test_games_of_its_own_in_a_lesson_take_the_memory_of_games_that_it_plays(slim):
    def games(*overrides: str) -> int:
        return plan_memory(setup(slim, "experiment=none", *overrides), "cuda", "bf16").games

    lesson = "algorithm=distill", "algorithm.slips=0"
    assert games(*lesson) == 0
    assert games(*lesson, "algorithm.on_policy=0.5") == games("algorithm=grpo") > 0


def test_beams_count_as_games(slim):
    one, many = (settle(slim, f"sampling.beams={n}", gb=6).model.games_at_once for n in (1, 8))
    assert 0 < many <= one / 8


@pytest.mark.parametrize(
    ("given", "gb", "less"),
    [
        ("rollout.groups=1 num_generations=512", 8, "num_generations=64"),
        ("sampling.beams=900", 8, "sampling.beams=100"),
        ("model.lora=null", 14, "model.lora={rank: 16}"),
        ("num_generations=2 rollout.groups=1", 1.8, "model.quantize=4bit"),
        ("model.quantize=4bit num_generations=2", 1.59, "sampling.max_tokens=32"),
    ],
)
def test_what_cannot_fit_is_refused_and_what_is_named_takes_less(given, gb, less, slim):
    with pytest.raises(ConfigError, match=r"GB may be used: choose") as error:
        settle(slim, *given.split(), gb=gb)
    assert less.partition("=")[0] in str(error.value)
    settle(slim, *given.split(), less, gb=gb)


def test_a_run_on_a_pretrained_model_says_what_it_will_take(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "base"
    qwen(340).save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    line = f"algorithm=grpo num_generations=2 {SMALL_RUN.partition('generations=1')[2]}"
    settings = "prompt=symbols prompt.think=false model.max_tokens=12 optim=muon"
    command = f"model={folder} {settings} {line} output_dir={tmp_path}"
    training(f"{command}")()
    out = capsys.readouterr().out
    assert out.index("memory plan for") < out.index("parameters") and "in validation" in out
    head, row = map(str.split, re.findall(r".*(?:win%| step 1/\d+ +[-\d]).*", out))
    assert head[-1] == "left" and {"s", "min"} & {*row}, "how long the command will take"
    with pytest.raises(SystemExit) as end:
        training(f"{command} trainer.memory_limit_gb=0.0001")()
    assert end.value.code == 2
    assert re.search(r"error: .* 0.0 GB may be used", capsys.readouterr().err)
