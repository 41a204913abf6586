"""examples/verl writes fair rows and verl's settings, and refuses what is unfair."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from verl_game import VerlGame, choose_settings
from write_files import YAML, build_rows, main, map_keys, write_folder

from tests.helpers.configs import composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

datasets = pytest.importorskip("datasets", reason="needs the extra data: pip install -e '.[data]'")

SPLITS = split_secrets(load_words())
ACTOR = "actor_rollout_ref.actor"


def setup_of(*settings: str) -> Any:
    return build_experiment(resolve(composed("model=tiny", *settings)))


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """The files of the experiment in docs/SCALE.md."""
    folder = tmp_path_factory.mktemp("verl") / "my files"
    main(["model=qwen3b", "reward=phase2", "num_generations=8", f"output={folder}"])
    return folder


def test_the_command_of_the_docs_writes_rows_that_datasets_reads(written, tmp_path):
    for part in ("train", "val", "test"):
        path = str(written / f"{part}.parquet")
        rows = datasets.load_dataset(
            "parquet", data_files=path, split="train", cache_dir=str(tmp_path)
        )
        secrets = [row["extra_info"]["secret"] for row in rows]
        assert tuple(secrets) == SPLITS.secrets(part)
        assert set(rows["agent_name"]) == {"wordle"}
        assert {row["extra_info"]["splits"] for row in rows} == {SPLITS.digest}
        assert [row["ground_truth"] for row in rows["reward_model"]] == secrets
        assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    [loop] = yaml.safe_load((written / YAML).read_text())
    assert loop["name"] == "wordle" and loop["game"]["max_tokens"] == 256


def test_the_launch_script_has_the_experiments_keys_and_lets_arguments_win(written, tmp_path):
    stub, log = tmp_path / "python", tmp_path / "log"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$LOG"\n')
    stub.chmod(0o755)
    env = {"PATH": "/bin:/usr/bin", "PYTHON": str(stub), "LOG": str(log), "NNODES": "4"}
    env["PYTHONPATH"] = "/first"
    script = [str(ROOT / "examples/verl/train.sh"), str(written), "trainer.test_freq=7"]
    subprocess.run(["bash", *script], env=env, check=True)
    lines = log.read_text().splitlines()
    assert lines[:2] == ["-m", "verl.trainer.main_ppo"] and lines[-1] == "trainer.test_freq=7"
    overrides = dict(line.split("=", 1) for line in lines[2:])
    assert overrides["actor_rollout_ref.model.path"] == "'Qwen/Qwen2.5-3B-Instruct'"
    assert overrides["actor_rollout_ref.rollout.n"] == "8"
    assert overrides["actor_rollout_ref.model.lora_rank"] == "32"
    assert overrides["trainer.nnodes"] == "4" and overrides["trainer.n_gpus_per_node"] == "1"
    assert overrides["data.train_files"].strip("'") == f"{written}/train.parquet"
    [loop] = yaml.safe_load((written / YAML).read_text())
    place = overrides["+ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH"].strip("'")
    module, name = loop["_target_"].split(".")
    assert place.startswith("/first:")
    assert f"class {name}(" in Path(place.split(":")[-1], f"{module}.py").read_text()
    from hydra.core.override_parser.overrides_parser import OverridesParser

    OverridesParser.create().parse_overrides(lines[2:])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["algorithm=dapo"], {f"{ACTOR}.loss_agg_mode": "token-mean"}),
        (["algorithm=gspo"], {f"{ACTOR}.policy_loss.loss_mode": "gspo"}),
        (
            ["algorithm.beta=0.1", "optim.lr=3e-5", "trainer.steps=7"],
            {
                f"{ACTOR}.kl_loss_coef": 0.1,
                f"{ACTOR}.optim.lr": 3e-5,
                "trainer.total_training_steps": 7,
                "algorithm.rollout_correction.rollout_is_threshold": 2.0,
            },
        ),
        (["algorithm.minibatches=4", "rollout.groups=8"], {f"{ACTOR}.ppo_mini_batch_size": 2}),
    ],
)
def test_choices_reach_verls_keys(settings, expected):
    assert map_keys(setup_of(*settings)).items() >= expected.items()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["algorithm=ppo"], "algorithm must be one of grpo, dapo"),
        (["rollout=best_of"], "rollout must be one of game, turn"),
        (["sampling.grammar=words"], "sampling.grammar must be null for verl"),
    ],
)
def test_what_would_be_another_run_is_refused_in_one_line(settings, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        write_folder(tmp_path / "files", setup_of(*settings))
    assert not (tmp_path / "files").exists()


# -- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["phase1", "phase2"])
def test_a_node_scores_games_by_the_rewards_of_the_run(reward):
    setup = setup_of(f"reward={reward}", "algorithm.beta=0.1", "algorithm.kl=reward")
    node = VerlGame(choose_settings(setup))
    game = node.begin(build_rows(setup)["train"][0]["extra_info"])
    for word in ("crane", "zzzzz", "slate", "crane", SPLITS.train[0]):
        game.play(word, text=f"<guess>{word}</guess>", tokens=2)
    assert game.won
    reward, expected = node.reward(game), setup.recipe.rewards.reward(game)
    assert reward.total == expected.total and reward.turn_totals == expected.turn_totals
    parts = node.describe(game, reward)
    assert sum(v for k, v in parts.items() if k.startswith("reward_")) == pytest.approx(
        expected.total
    )
