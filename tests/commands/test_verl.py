"""wordle-rl verl writes fair rows and verl's settings, and refuses what is unfair."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.commands import command
from tests.helpers.configs import OPTIONS, composed
from wordle_rl.__main__ import run as wordle_rl
from wordle_rl.adapters.verl.files import (
    DIGESTS,
    SCRIPT,
    YAML,
    build_rows,
    check_parts,
    write_value,
)
from wordle_rl.adapters.verl.game import build_game, choose_settings, read_clues
from wordle_rl.adapters.verl.keys import map_choices
from wordle_rl.adapters.verl.limits import UNFOLLOWED
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import feedback_code
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.tables import file_digest, read_table, write_table
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

datasets = pytest.importorskip("datasets", reason="needs the extra data: pip install -e '.[data]'")

SPLITS = split_secrets(load_words())
ISSUE = ("model=qwen3b", "reward=phase2", "num_generations=8", "words=original")


def write(folder: Path, *settings: str) -> Path:
    wordle_rl(["verl", *(settings or ("model=tiny",)), f"output={folder}"])
    return folder


def setup_of(*settings: str) -> Any:
    return build_experiment(resolve(composed(*settings)))


def keys_of(*settings: str) -> dict[str, Any]:
    return map_choices(setup_of(*settings))[0]


def lines_of(*settings: str) -> str:
    return "\n".join(map_choices(setup_of(*settings))[1])


def read_rows(folder: Path, part: str, cache: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_table(folder / f"{part}.parquet", None, cache).rows()]


def replace_rows(folder: Path, part: str, rows: list[dict[str, Any]]) -> None:
    """Put other rows in a file, as somebody would who also knows about the digests."""
    path = folder / f"{part}.parquet"
    write_table(path, rows, "parquet")
    recorded = json.loads((folder / DIGESTS).read_text())
    recorded["files"][path.name] = file_digest(path)
    (folder / DIGESTS).write_text(json.dumps(recorded))


@pytest.fixture
def said(capsys) -> Callable[..., str]:
    """Runs the command, which must fail. Returns its one line."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            wordle_rl(["verl", *arguments])
        [line] = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and line.startswith("error: ")
        return line

    return run


def test_the_command_of_the_docs_writes_rows_that_datasets_reads(tmp_path):
    done, _ = command("-m", "wordle_rl", "verl", *ISSUE, f"output={tmp_path / 'files'}")
    assert done.returncode == 0, done.stderr
    assert "1,800 train, 200 val, 315 test rows" in done.stdout
    assert f"splits: {SPLITS.digest}" in done.stdout
    assert "verl cannot follow rollout.credit=turn" in done.stdout
    for part in ("train", "val", "test"):
        path = str(tmp_path / "files" / f"{part}.parquet")
        found = datasets.load_dataset(
            "parquet", data_files=path, split="train", cache_dir=str(tmp_path / "cache")
        )
        secrets = [row["extra_info"]["secret"] for row in found]
        assert tuple(secrets) == SPLITS.secrets(part)
        assert set(found["agent_name"]) == {"wordle"}
        assert {row["extra_info"]["splits"] for row in found} == {SPLITS.digest}
        assert [row["ground_truth"] for row in found["reward_model"]] == secrets
        assert [message["role"] for message in found[0]["prompt"]] == ["system", "user"]
    [loop] = yaml.safe_load((tmp_path / "files" / YAML).read_text())
    assert loop["name"] == "wordle" and loop["game"]["max_tokens"] == 256
    assert loop["_target_"] == "wordle_rl.adapters.verl.loop.WordleLoop"


def test_the_launch_script_has_verls_keys_and_lets_arguments_win(tmp_path):
    folder = write(tmp_path / "my files", *ISSUE)
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$LOG"\n')
    fake.chmod(0o755)
    log = tmp_path / "log"
    env = {"PATH": "/bin:/usr/bin", "PYTHON": str(fake), "LOG": str(log), "NNODES": "4"}
    subprocess.run(["bash", str(folder / SCRIPT), "trainer.test_freq=7"], env=env, check=True)
    option, _, looks_for_verl, *lines = log.read_text().splitlines()
    assert option == "-c" and 'find("verl")' in looks_for_verl
    assert lines[:4] == ["-m", "wordle_rl", "verl", f"check={folder}"]
    assert lines[4:6] == ["-m", "verl.trainer.main_ppo"]
    given = dict(line.split("=", 1) for line in lines[6:])
    assert given["actor_rollout_ref.rollout.name"] == "vllm"
    assert given["actor_rollout_ref.model.path"] == "Qwen/Qwen2.5-3B-Instruct"
    assert given["actor_rollout_ref.rollout.n"] == "8"
    assert given["actor_rollout_ref.model.lora_rank"] == "32"
    assert given["trainer.nnodes"] == "4" and given["trainer.n_gpus_per_node"] == "1"
    assert given["data.train_files"].strip("'").endswith("/train.parquet")
    assert lines[-1] == "trainer.test_freq=7"


def test_the_launch_script_without_verl_ends_in_one_line(tmp_path):
    folder = write(tmp_path / "files")
    (tmp_path / "verl").mkdir()  # a folder of this name is no package
    env = {"PATH": "/bin:/usr/bin", "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)}
    run = ["bash", str(folder / SCRIPT)]
    done = subprocess.run(run, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} has no verl: see docs/VERL.md")


def test_equal_settings_write_equal_files(tmp_path):
    one, other = (write(tmp_path / name, "model=tiny", "seed=3") for name in "ab")
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


# -- the three failures of an earlier attempt, of which test_verl_loop.py has the first ---------


def test_one_single_validation_word_is_refused(tmp_path, said):
    folder = write(tmp_path / "files")
    rows = read_rows(folder, "val", tmp_path / "cache")
    replace_rows(folder, "val", [rows[0]] * len(rows))
    line = said(f"check={folder}")
    secret = rows[0]["extra_info"]["secret"]
    assert f"val must have 2 different secrets or more, not 1 ({secret})" in line
    assert "words.val must hold out 2 secrets or more" in said(
        "model=tiny", "words.val=1", f"output={tmp_path / 'other'}"
    )


@pytest.mark.parametrize("claims", ["train", "val"])
def test_training_words_among_validation_words_are_refused(claims, tmp_path, said):
    folder = write(tmp_path / "files")
    cache = tmp_path / "cache"
    stray = read_rows(folder, "train", cache)[0]
    stray["extra_info"]["split"] = claims
    replace_rows(folder, "val", [*read_rows(folder, "val", cache), stray])
    secret = stray["extra_info"]["secret"]
    expected = {
        "train": "val.parquet must have rows of its own, not of train",
        "val": f"{secret} is among the val secrets but is none of this split",
    }
    assert expected[claims] in said(f"check={folder}")


def test_validation_words_among_training_words_are_refused(tmp_path, said):
    folder = write(tmp_path / "files")
    cache = tmp_path / "cache"
    stray = read_rows(folder, "val", cache)[0]
    stray["extra_info"]["split"] = "train"
    replace_rows(folder, "train", [*read_rows(folder, "train", cache), stray])
    assert "is a val secret and must not be trained on" in said(f"check={folder}")


def test_a_word_that_validation_repeats_is_refused():
    rows = {part: [{"secret": w, "split": part} for w in "ab"] for part in ("train", "val", "test")}
    check_parts(rows)
    rows["val"].append(rows["val"][0])
    with pytest.raises(ConfigError, match="val must have each secret once, and a repeats"):
        check_parts(rows)


@pytest.mark.parametrize("name", ["train.parquet", "val.parquet", YAML])
def test_a_file_that_was_changed_is_refused(name, tmp_path, said, capsys):
    folder = write(tmp_path / "files")
    wordle_rl(["verl", f"check={folder}"])
    assert "as they were written" in capsys.readouterr().out
    with (folder / name).open("ab") as file:
        file.write(b"\n")
    assert f"{name}: was changed after it was written" in said(f"check={folder}")
    (folder / name).unlink()
    assert f"{name}: no such file" in said(f"check={folder}")


# -- rows -----------------------------------------------------------------------------------------


def test_games_begin_where_history_and_validation_history_say():
    setup = setup_of("model=tiny", "history=upto4", "trainer.validation_history=2")
    rows = build_rows(setup)
    for part, most in (("train", 4), ("val", 2), ("test", 0)):
        depths = set()
        for row in rows[part]:
            info = row["extra_info"]
            clues = read_clues(info["clues"]) if info["clues"] else ()
            for clue in clues:
                assert clue.feedback == feedback_code(clue.guess, info["secret"])
                assert clue.guess in row["prompt"][1]["content"]
            depths.add(len(clues))
        assert depths == set(range(most + 1))


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1800), (0.5, 3600), (1.0, 1800)])
def test_a_share_of_the_rows_has_any_allowed_word(share, expected):
    rows = build_rows(setup_of("model=tiny", f"words.allowed_share={share}"))["train"]
    secrets = [row["extra_info"]["secret"] for row in rows]
    other = [secret for secret in secrets if secret not in set(SPLITS.train)]
    assert len(secrets) == expected and not {*SPLITS.val, *SPLITS.test} & set(secrets)
    pool = len(load_words().allowed) - len(SPLITS.val) - len(SPLITS.test)
    new = share * (1 - len(SPLITS.train) / pool)  # any allowed word may be a training secret, too
    assert len(other) / len(secrets) == pytest.approx(new, abs=0.03)


def test_the_rows_of_a_file_are_trained_on(tmp_path):
    path = tmp_path / "states.jsonl"
    secrets = SPLITS.train[:70]
    lines = [{"secret": s, "past_guess_history": [["crane", None]]} for s in secrets]
    path.write_text("".join(json.dumps({"secret": line["secret"]}) + "\n" for line in lines))
    rows = build_rows(setup_of("model=tiny", f"data={path}"))
    assert tuple(row["extra_info"]["secret"] for row in rows["train"]) == secrets


# -- every choice is followed, printed or refused ------------------------------------------------

UNSEEN = {  # settings that change nothing here, and why
    "output_dir": "the folder is output=",
    "restart": "is for resume=",
    "init_checkpoint": "is for init_from=",
    "allow_mismatch": "is for models of our own runs",
    "model.name": "a name in tables, and the default of name=",
    "model.learning_rate": "the default of optim.lr",
    "model.max_tokens": "the default of sampling.max_tokens",
    "model.games_at_once": "limits our own validation",
    "model.seed": "of untrained models, which are refused",
    "model.backend": "says which backend loads the model",
    "history.player": "is for history.most above 0",
    **dict.fromkeys(
        ("vllm.urls", "vllm.prompts_at_once", "vllm.timeout", "vllm.retries", "vllm.most_gap"),
        "is for rollout.engine=vllm",
    ),
    "data.split": "is for data=<file>",
    "data.keep_held_out": "is for data=<file>",
    "trainer.validation_games_mb": "limits a file of our own runs",
    "trainer.games_every": "of a file of our own runs",
    "logger.tables": "of our own loggers",
    "words.split": "is for eval.py",
}
OTHER: dict[str, Any] = {  # values where adding 1 or another letter would be wrong
    "algorithm.scale": "none", "algorithm.kl": "reward", "algorithm.importance_cap": 2.0,
    "algorithm.clip_low": 0.3, "algorithm.entropy": 0.01, "algorithm.beta": 0.1,
    "backend.precision": "fp32", "backend.threads": 2, "backend.accelerator": "cpu",
    "backend.micro_batch_tokens": 8192, "backend.devices": 2,
    "model.path": "embedded/micro", "model.revision": "v1", "model.quantize": "4bit",
    "model.lora": {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": "all-linear"},
    "optim.schedule": "constant", "optim.name": "adamw", "optim.beta1": 0.8, "optim.beta2": 0.9,
    "optim.final_lr_ratio": 0.2, "optim.momentum": 0.5, "optim.rest_lr_ratio": 0.5,
    "prompt.think": True, "rollout.credit": "game", "rollout.form": "fresh",
    "rollout.discount": 0.25, "rollout.games_at_once": 64, "rollout.letter_weight": 1.0,
    "rules.invalid": "retry", "rules.unparsable": "retry", "rules.hard_mode": True,
    "sampling.top_p": 0.5, "history.player": "entropy", "init_from": "outputs/x", "resume": "x",
    "trainer.tree": "tree.json", "trainer.epochs": 2.0, "trainer.memory_limit_gb": 9.0,
    "trainer.device_memory_limit_gb": 9.0, "trainer.last_line": "done", "trainer.report_limit": 9,
    "data.path": "states.jsonl", "words.protocol": "allowed", "words.allowed_share": 0.5,
    "words.train": 100, "words.column": "x", "words.answers": "x.txt", "words.allowed": "y.txt",
    "words.preset": "none", "reward.lawful": False, "trainer.validation_temperature": 1.0,
    "vllm.urls": ["http://127.0.0.1:8001"],
}  # fmt: skip


def flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        elif key != "_target_":
            yield f"{prefix}{key}", value


def everything(config: dict[str, Any]) -> Any:
    """All that the command makes of a config: files, lines, or the refusal."""
    try:
        setup = build_experiment(config)
        keys, lines = map_choices(setup)
        return keys, lines, choose_settings(setup), build_rows(setup)
    except (ValueError, OSError) as refused:
        return str(refused)


def change(config: dict[str, Any], key: str, value: Any) -> Any:
    """Another value for a setting."""
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    return (value or 0) + 1


@pytest.mark.slow
def test_no_setting_is_dropped_in_silence():
    base = resolve(composed("model=tiny", "reward=phase2"))
    usual = everything(base)
    assert not isinstance(usual, str)
    dropped = []
    for key, value in flatten(base):
        other = resolve(composed("model=tiny", "reward=phase2"))
        node = other
        *groups, name = key.split(".")
        for group in groups:
            node = node[group]
        node[name] = change(base, key, value)
        if everything(other) == usual and key not in UNSEEN:
            dropped.append(key)
    assert not dropped


def test_every_key_that_is_printed_is_a_setting():
    known = {key for name in ("tiny", "qwen3b", "gemma4b-mlx")
             for key, _ in flatten(resolve(composed(f"model={name}")))}  # fmt: skip
    known |= {"model.quantize", "model.revision"}
    assert set(UNFOLLOWED) <= known


KEYS = {  # what is set -> verl's key and value
    "algorithm.beta=0.1": ("actor_rollout_ref.actor.kl_loss_coef", 0.1),
    "algorithm.clip_high=0.3": ("actor_rollout_ref.actor.clip_ratio_high", 0.3),
    "algorithm.scale=none": ("algorithm.norm_adv_by_std_in_grpo", False),
    "algorithm.importance_cap=2.0": ("algorithm.rollout_correction.rollout_is_threshold", 2.0),
    "algorithm.minibatches=4": ("actor_rollout_ref.actor.ppo_mini_batch_size", 16),
    "algorithm.epochs=2": ("actor_rollout_ref.actor.ppo_epochs", 2),
    "algorithm=dapo": ("actor_rollout_ref.actor.loss_agg_mode", "token-mean"),
    "algorithm=gspo": ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspo"),
    "algorithm=rloo": ("algorithm.adv_estimator", "rloo"),
    "algorithm=dr_grpo": ("actor_rollout_ref.actor.loss_scale_factor", 6 * 12),
    "rollout.groups=32": ("data.train_batch_size", 32),
    "sampling.temperature=0.7": ("actor_rollout_ref.rollout.temperature", 0.7),
    "optim.clip_grad_norm=0.5": ("actor_rollout_ref.actor.optim.clip_grad", 0.5),
    "trainer.steps=7": ("trainer.total_training_steps", 7),
    "trainer.validation_samples=4": ("actor_rollout_ref.rollout.val_kwargs.n", 4),
    "seed=5": ("data.seed", 5),
}


@pytest.mark.parametrize("setting", KEYS)
def test_choices_reach_verls_keys(setting):
    key, value = KEYS[setting]
    assert keys_of("model=tiny", setting)[key] == value


@pytest.mark.parametrize(
    ("settings", "said_of_it"),
    [
        (["curriculum=linear", "reward=phase2"], "curriculum=linear: rewards and secrets stay"),
        (["rollout.letter_weight=1.0"], "rollout.letter_weight=1.0: no letter has an advantage"),
        (["optim=muon"], "optim=muon: AdamW trains every weight, with optim.lr=0.0004"),
        (["algorithm=dapo"], "algorithm.resample=10: verl replaces groups without limit"),
        (["rollout=turn"], "history by step: where a game begins is drawn once per row"),
    ],
)
def test_what_verl_cannot_follow_is_one_line_each(settings, said_of_it):
    assert f"verl cannot follow {said_of_it}" in lines_of("model=tiny", *settings)


def test_nothing_is_printed_where_verl_follows_everything():
    settings = [
        "rollout.credit=game",
        "rollout.discount=1.0",
        "optim=adamw",
        "trainer.report=false",
    ]
    assert lines_of("model=tiny", *settings) == ""


REFUSED = {
    "algorithm=ppo": "algorithm must be grpo, dapo, dr_grpo, rloo, gspo for verl, not ppo",
    "algorithm=sft num_generations=1": "for verl, not sft",
    "rollout=best_of": "rollout must be game or turn for verl, not best_of",
    "rollout.form=fresh": "rollout.form must be conversation or tool for verl, not fresh",
    "algorithm.minibatches=7": "algorithm.minibatches must divide rollout.groups=64 for verl",
    "model=untrained": "model.path must be a hub name or a folder with whole weights for verl",
    "init_from=outputs/run": "init_from must be null for verl: write the run's model with",
    "rollout.groups=2000": "rollout.groups must be at most the number of training rows for verl",
    "modle=tiny": "did you mean model?",
    "output=": "output must name a folder: output=<folder>",
    "check=x": "check takes no other settings",
}


@pytest.mark.parametrize("settings", REFUSED)
def test_what_would_be_another_run_is_refused_in_one_line(settings, said, tmp_path):
    given = settings.split()
    if "model" not in settings:
        given = ["model=tiny", *given]
    if not settings.startswith("output="):
        given.append(f"output={tmp_path}")
    assert REFUSED[settings] in said(*given)
    assert not list(tmp_path.glob("*.parquet"))


def test_the_folder_must_be_given_and_free(tmp_path, said):
    assert "output must be given: output=<folder>" in said("model=tiny")
    quoted = tmp_path / "it's"
    assert "must be a folder without ' in its name" in said("model=tiny", f"output={quoted}")
    (tmp_path / "file").touch()
    for name in ("file", "file/inside"):
        line = said("model=tiny", f"output={tmp_path / name}")
        assert f"output must be a folder, but {tmp_path / 'file'} is a file" in line
    line = said("model=tiny", f"output={tmp_path}")
    assert f"this command's files alone: {tmp_path} has file, too" in line
    (tmp_path / "checkpoints").mkdir()
    assert "output must be a folder without checkpoints" in said("model=tiny", f"output={tmp_path}")


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ({}, "splits is missing"),
        ({"splits": "x", "files": 1}, "files must be"),
        ({"splits": "x", "files": {"train.parquet": "x"}}, "must list agent_loop.yaml"),
    ],
)
def test_digests_that_leave_out_a_file_are_refused(recorded, expected, tmp_path, said):
    (tmp_path / DIGESTS).write_text(json.dumps(recorded))
    assert expected in said(f"check={tmp_path}")


def test_only_a_folder_is_checked(tmp_path, said):
    nowhere, file = tmp_path / "nope", tmp_path / "file"
    file.touch()
    assert f"check must name a folder: {nowhere}: no such folder" in said(f"check={nowhere}")
    assert f"check must name a folder: {file}: is a file" in said(f"check={file}")


def test_writing_again_says_that_it_replaces_the_files(tmp_path, capsys):
    folder = write(tmp_path / "files")
    assert "replaced" not in capsys.readouterr().out
    write(folder, "model=tiny", "seed=3")
    assert f"replaced the files that an earlier command wrote into {folder}" in (
        capsys.readouterr().out
    )
    wordle_rl(["verl", f"check={folder}"])


def test_a_folder_without_digests_is_refused(tmp_path, said):
    assert DIGESTS in said(f"check={tmp_path}")


@pytest.mark.parametrize("value", ["plain/path-1.0", "my run", "it's", "a,b", "[x]", "k=v", ""])
def test_values_are_written_as_hydra_reads_them(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    [override] = OverridesParser.create().parse_overrides([f"name={write_value(value)}"])
    assert override.value() == value


@pytest.mark.parametrize("reward", OPTIONS["reward"])
def test_a_node_scores_games_by_the_rewards_of_the_run(reward):
    setup = setup_of("model=tiny", f"reward={reward}")
    game = build_game(choose_settings(setup)).begin(build_rows(setup)["train"][0]["extra_info"])
    for word in ("crane", "zzzzz", "slate", "crane", SPLITS.train[0]):
        game.play(word, text=f"<guess>{word}</guess>", tokens=2)
    assert game.won
    node = build_game(choose_settings(setup))
    assert node.score(game).turns == setup.recipe.rewards.score(game).turns
