"""What a user sees of memory plans: the command, the lines before a run, and refusals."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.commands import SMALL_RUN, training
from tests.helpers.configs import composed
from tests.helpers.tiny import qwen, qwen_like_tokenizer
from wordle_rl.backends.torch import memory_checks
from wordle_rl.backends.torch.backend import share_choices
from wordle_rl.backends.torch.memory_checks import limit_product_caches, plan_run
from wordle_rl.backends.torch.memory_plan import Planner
from wordle_rl.backends.torch.model_configs import build_config
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.memory import memory, spread
from wordle_rl.policy.computing import Computing
from wordle_rl.policy.memory_plan import GB
from wordle_rl.runs.instantiate import ConfigError


@pytest.fixture(scope="module")
def slim(tmp_path_factory) -> str:
    """A folder with the config of Qwen2.5-3B, but four layers. A plan reads no weights."""
    folder = tmp_path_factory.mktemp("slim")
    config = build_config("Qwen/Qwen2.5-3B-Instruct")
    config.num_hidden_layers, config.layer_types = 4, ["full_attention"] * 4
    config.save_pretrained(folder)
    (folder / "model.safetensors").touch()
    return str(folder)


@pytest.fixture(autouse=True)
def plan_small_models(monkeypatch):
    monkeypatch.setattr(memory_checks, "_LARGE", 0)


def setup(*overrides: str) -> Any:
    return build_experiment(resolve(composed("model=qwen3b", *overrides)))


def test_several_values_make_every_combination():
    columns = list(spread(["model=qwen3b", "num_generations=2,4", "optim=adamw,muon"]))
    assert [name for name, _ in columns] == [
        "num_generations=2 optim=adamw", "num_generations=2 optim=muon",
        "num_generations=4 optim=adamw", "num_generations=4 optim=muon",
    ]  # fmt: skip
    assert columns[0][1] == ["model=qwen3b", "num_generations=2", "optim=adamw"]
    assert list(spread(["model.lora={rank: 4, alpha: 8}"])) == [
        ("GB", ["model.lora={rank: 4, alpha: 8}"])
    ]


def test_the_command_prints_a_table_for_each_backend(capsys):
    memory(["model=mini", "num_generations=2,8"])
    out = capsys.readouterr().out
    assert [b for b in re.findall(r"on (torch|MLX) in bf16", out)] == ["torch", "MLX"]
    assert len(re.findall(r"num_generations=2 +num_generations=8", out)) == 2
    assert len(re.findall(r"^fits 141 GB +yes +yes$", out, re.M)) == 2


@pytest.mark.slow
def test_a_folder_with_config_json_alone_is_planned_and_not_trained(capsys, tmp_path):
    build_config("Qwen/Qwen2.5-3B-Instruct").save_pretrained(tmp_path)
    given = ["model=qwen3b", f"model.path={tmp_path}", "backend=lightning"]
    memory(given)
    assert "3,085,938,688 weights, 59,867,136 trained" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"is no model folder: it needs config.json or"):
        setup(*given)


def test_wrong_settings_end_the_command_in_one_line():
    with pytest.raises(ConfigError, match=r"^num_generations must be one of"):
        memory(["model=qwen3b", "num_generations=0"])


def test_512_games_of_qwen3b_hold_40_gb_of_keys_and_values():
    planner = Planner(setup(), "cuda", "bf16")
    assert planner.games == 512
    # 36 layers, keys and values, 2 heads of 128 numbers of 2 bytes
    by_hand = 36 * 2 * 2 * 128 * 2 * 512 * planner.game.whole
    held = planner.model.play(planner.game, 512).keys_values.at(512)
    assert by_hand <= held <= 1.13 * by_hand  # rows grow by an eighth
    assert 36 * GB < held < 42 * GB


def test_lora_on_a_cpu_holds_sums_and_a_second_copy_of_them_as_reference(slim):
    experiment = setup(f"model.path={slim}")
    # four layers with q, o; k, v; gate, up, down, of 2 bytes a number
    by_hand = 4 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11_008) * 2
    cpu, cuda = (
        Planner(experiment, place, "bf16").model.keep(experiment.optim, reference=True)
        for place in ("cpu", "cuda")
    )
    assert (cpu.sums, cpu.reference) == (by_hand, by_hand)
    assert (cuda.sums, cuda.reference) == (0, cuda.adapters)
    assert cpu.always - cuda.always == 2 * by_hand - cuda.adapters


@pytest.mark.slow
def test_a_run_that_cannot_play_names_the_number_of_games(slim):
    path = f"model.path={slim}"
    with pytest.raises(ConfigError) as error:
        plan_run(setup(path), "cuda", "bf16", 10 * GB)
    found = re.search(
        r"^rollout.games_at_once must be auto, or (\d+) or less, to fit into the 9.2 GB .* not "
        r"null: 512 games at once need",
        str(error.value),
    )
    assert found
    games = int(found[1])
    # What the line advises fits, and one group more does not.
    planner = Planner(setup(path), "cuda", "bf16")
    assert games % 8 == 0
    assert planner.plan(games).while_training() <= 0.92 * 10 * GB
    assert planner.plan(games + 8).while_training() > 0.92 * 10 * GB
    chosen = plan_run(setup(path, "rollout.games_at_once=auto"), "cuda", "bf16", 10 * GB)
    assert chosen.recipe.rollout.games_at_once == games
    with pytest.raises(ConfigError, match=rf"or {games} or less, to fit .* not {games + 8}: "):
        plan_run(setup(path, f"rollout.games_at_once={games + 8}"), "cuda", "bf16", 10 * GB)


def test_games_all_at_once_are_what_auto_picks_where_they_fit(slim):
    few = [f"model.path={slim}", "rollout.games_at_once=auto", "rollout.groups=4"]
    assert plan_run(setup(*few), "cuda", "bf16", 80 * GB).recipe.rollout.games_at_once == 32


def test_a_group_that_cannot_play_together_is_refused(slim):
    large = [f"model.path={slim}", "rollout.groups=1", "rollout.num_generations=512"]
    with pytest.raises(ConfigError, match=r"^rollout.num_generations must be \d+ or less .* 512,"):
        plan_run(setup(*large, "rollout.games_at_once=auto"), "cuda", "bf16", 10 * GB)


@pytest.mark.slow
def test_a_run_that_cannot_learn_names_the_micro_batch(slim, capsys):
    few = [f"model.path={slim}", "rollout.groups=1", "num_generations=2", "model.games_at_once=2"]
    with pytest.raises(ConfigError, match=r"micro_batch_tokens must be 8192 or less .* not 16384"):
        plan_run(setup(*few, "backend.micro_batch_tokens=16384"), "cuda", "bf16", 12 * GB)
    chosen = plan_run(setup(*few, "backend.micro_batch_tokens=auto"), "cuda", "bf16", 12 * GB)
    assert chosen.backend.micro_batch_tokens == 8192
    assert "memory plan:" in capsys.readouterr().out
    # One game is too long, unless layers are computed again.
    with pytest.raises(ConfigError, match=r"set backend.gradient_checkpointing=true"):
        plan_run(setup(*few), "cuda", "bf16", 4 * GB)
    again = "backend.gradient_checkpointing=true"
    plan_run(setup(*few, again), "cuda", "bf16", 4 * GB)
    assert "layers computed again" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"lower sampling.max_tokens"):
        plan_run(setup(*few, again), "cuda", "bf16", 2.5 * GB)


def test_games_of_validation_and_limits_of_the_trainer_count(slim):
    path = f"model.path={slim}"
    with pytest.raises(ConfigError, match=r"^model.games_at_once must be \d+ or less"):
        plan_run(setup(path, "rollout.groups=1"), "cuda", "bf16", 5 * GB)
    limited = setup(path, "trainer.device_memory_limit_gb=6")
    with pytest.raises(ConfigError, match=r"into the 6.0 GB"):
        plan_run(limited, "cuda", "bf16", 141 * GB)


def test_reports_on_large_models_play_fewer_games(slim):
    planner = Planner(setup(f"model.path={slim}", "words.val=10"), "cuda", "bf16")
    assert planner.held_out_games == 64
    planner = Planner(setup(f"model.path={slim}", "trainer.report_limit=300"), "cuda", "bf16")
    assert planner.held_out_games == 300
    watched = setup(f"model.path={slim}", "trainer.watch_every=1")
    assert Planner(watched, "cuda", "bf16").held_out_games == 315


def test_a_teachers_games_are_short_and_hold_no_keys_and_values(slim):
    played = Planner(setup(f"model.path={slim}"), "cuda", "bf16")
    taught = Planner(setup(f"model.path={slim}", "algorithm=sft"), "cuda", "bf16")
    assert (played.games, taught.games) == (512, 0)
    assert taught.game.whole < played.game.whole / 2
    plan = taught.plan()
    assert plan.held_out == played.plan().held_out
    assert plan.while_training() == plan.kept.always


def test_single_turns_are_shorter_than_the_games_of_validation(slim):
    planner = Planner(setup(f"model.path={slim}", "rollout=turn"), "cuda", "bf16")
    plan = planner.plan()
    assert plan.playing.keys_values.at(8) < plan.held_out.keys_values.at(8)
    # Up to four guesses are given, and one answer of 256 tokens is played.
    whole = Planner(setup(f"model.path={slim}"), "cuda", "bf16").game.whole
    assert planner.game.trained == 256 < planner.game.whole < whole - 4 * 256


def test_small_models_are_not_planned(capsys, monkeypatch):
    monkeypatch.setattr(memory_checks, "_LARGE", 50_000_000)
    cfg = composed("model=tiny")
    tiny = build_experiment(resolve(cfg))
    assert plan_run(tiny, "cpu", "fp32", 1.0) is tiny
    auto = build_experiment(resolve(composed("model=micro", "rollout.games_at_once=auto")))
    assert plan_run(auto, "cpu", "fp32", 16 * GB).recipe.rollout.games_at_once == 512
    assert capsys.readouterr().out == ""


def test_other_processes_take_the_choices_of_the_first():
    auto = ["rollout.games_at_once=auto", "backend.micro_batch_tokens=auto", "backend.devices=2"]
    cfg = composed("model=micro", "rollout.groups=4", "num_generations=2", *auto)
    first = plan_run(build_experiment(resolve(cfg)), "cpu", "fp32", 16 * GB)
    policy: Any = SimpleNamespace(computing=Computing(precision="fp32"))
    other = build_experiment(share_choices(first, policy))
    assert other.backend.precision == "fp32"
    assert other.backend.micro_batch_tokens == first.backend.micro_batch_tokens == 16_384
    assert other.recipe.rollout.games_at_once == 4  # two of the four groups


def test_a_run_on_a_pretrained_model_begins_with_its_plan(tmp_path, capsys):
    folder = tmp_path / "base"
    qwen(340).save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)
    line = SMALL_RUN.partition("algorithm=")[2]
    common = f"model=micro model.path={folder} algorithm={line} output_dir={tmp_path}"
    training(f"{common} backend.micro_batch_tokens=auto rollout.games_at_once=auto")()
    out = capsys.readouterr().out
    assert out.index("memory plan:") < out.index("parameters") and "in validation" in out
    with pytest.raises(SystemExit) as end:
        training(f"{common} trainer.memory_limit_gb=0.0001")()
    assert end.value.code == 2
    assert re.search(r"error: .* must fit into the 0.0 GB", capsys.readouterr().err)


CACHE_SIZES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "32"}


@pytest.mark.parametrize(
    ("large", "device", "kept"), [(0, "cpu", CACHE_SIZES), (0, "cuda:0", {}), (10**12, "cpu", {})]
)
def test_few_products_are_kept_for_a_pretrained_model_on_the_cpu(
    large, device, kept, monkeypatch, model_folder
):
    monkeypatch.setattr(memory_checks, "_LARGE", large)
    monkeypatch.setattr(memory_checks.os, "environ", {})
    limit_product_caches(setup(f"model.path={model_folder}"), device)
    assert memory_checks.os.environ == kept


def test_a_size_of_a_products_cache_that_is_set_stays(monkeypatch, model_folder):
    monkeypatch.setattr(memory_checks, "_LARGE", 0)
    monkeypatch.setattr(memory_checks.os, "environ", {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"})
    limit_product_caches(setup(f"model.path={model_folder}"), "cpu")
    assert memory_checks.os.environ == CACHE_SIZES | {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}
