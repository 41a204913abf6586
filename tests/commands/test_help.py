"""--help: the choices and every setting with its comment, in a terminal's width."""

import os
import re
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from wordle_rl.commands.help import format_group, format_help, format_usual, read_comments
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.paths import CONF, CONFIG_DIR, ROOT


def page(name: str, *overrides: str) -> str:
    return format_help(name, compose_config(name, overrides, with_hydra=True))


def test_the_page_shows_choices_settings_and_the_comments_of_conf(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, page("config").splitlines())) <= 80
    text = " ".join(page("config", "reward=win_only", "model=qwen3b", "optim.lr=0.5").split())
    assert "reward= information_allowed, free, information, phase1" in text and "*win_only" in text
    assert "What a game earns." in text
    assert "model.path=Qwen/Qwen2.5-3B-Instruct" in text
    assert re.search(r"optim\.lr=0\.5 \w+", text)
    assert "trainer.report=true Whether to play the test secrets at the start" in text
    assert "_target_=" not in text and "hydra.run" not in text
    cfg = compose_config("config", ["reward=win_only"], with_hydra=True)
    text = " ".join(format_group("config", "reward", cfg).split())
    assert "*win_only The baseline without shaping" in text and "phase2 Learn strategy" in text
    assert "reward.lawful=true" in text and "trainer" not in text
    assert re.search(r"components\.win\.weight=\S+ Each .*\(0\.\.1000000\).* 1 \+ speed for", text)
    text = " ".join(page("eval").split())
    assert "json=false Whether the last line is the content of summary.json." in text
    assert "trainer.steps" not in text and "hydra.sweeper" not in text


@pytest.mark.parametrize("name", ["config", "eval"])
def test_the_short_page_has_what_people_touch_in_40_lines(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = format_usual(name, compose_config(name, ["model=qwen3b"], with_hydra=True))
    assert len(text.splitlines()) <= 40 and max(map(len, text.splitlines())) <= 100
    for key in ("model=", "prompt=", "sampling.temperature=", "seed="):
        assert f"\n  {key}" in text
    assert "Qwen/Qwen2.5-3B-Instruct" in text and "all: everything" in text
    assert "vllm" not in text and "words.val=" not in text


@pytest.mark.parametrize("given", [[], ["model=qwen3b"], ["experiment=study"]])
def test_a_setting_of_config_or_game_is_explained_by_no_other_file(given, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text, cfg = " ".join(page("config", *given).split()), compose_config("config", given)
    for name in ("config", "game"):
        for key, meaning in read_comments(CONF / f"{name}.yaml").items():
            value = OmegaConf.select(cfg, key)
            if meaning and isinstance(value, int | float | str) and not isinstance(value, bool):
                assert re.search(rf" {re.escape(key)}=\S* {re.escape(meaning)}", text), key


def test_the_page_says_what_the_chosen_model_and_experiment_bring():
    text = " ".join(page("config", "model=qwen3b", "experiment=reinforce").split())
    assert re.search(r"\* brings prompt=state_think reward=phase2 .*trainer.steps=100", text)
    assert re.search(
        r"\* brings model=pretrained prompt=spelled .*rollout=best_of .*rollout.groups=6 ", text
    )


def test_options_in_a_folder_of_ones_own_stand_behind_the_projects(monkeypatch):
    monkeypatch.setenv(CONFIG_DIR, str(ROOT / "examples" / "own_parts"))
    text = " ".join(page("config").split())
    assert re.search(r"reward= \*information_allowed, .* win_only, vowel What a game earns", text)


FILE = """\
# @package _global_
# What it is.
first: 1
defaults: [none]
mine:
  _target_: wordle_rl.some.Class
  behind: "a # b"  # Behind the key.
  # Above the key,
  # in two lines.
  above: {_target_: wordle_rl.some.Class, weight: 2}
  silent: null
"""


def test_comments_are_found_behind_a_key_or_above_it_but_never_in_the_header(tmp_path):
    (tmp_path / "group").mkdir()
    path = tmp_path / "group" / "option.yaml"
    path.write_text(FILE)
    assert read_comments(path, tmp_path) == {
        "first": "",
        "mine.behind": "Behind the key.",
        "mine.above": "Above the key, in two lines.",
        "mine.silent": "",
    }


def test_a_shell_completes_choices_and_their_options():
    files = {f"experiment={file.stem}" for file in CONF.glob("experiment/*.yaml")}
    for line, options in ("train model = qwen0", {"qwen0.5b-coder"}), ("train exp", files):
        shell = {"COMP_WORDS": f"wordle-rl {line}", "COMP_CWORD": str(len(line.split()))}
        env = {**os.environ, "_WORDLE_RL_COMPLETE": "complete_bash", **shell}
        out = subprocess.check_output([sys.executable, "-m", "wordle_rl"], env=env, cwd=ROOT)
        assert {*out.decode().split()} == options
