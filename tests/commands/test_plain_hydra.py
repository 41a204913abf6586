"""Hydra's own compose() gives a command's config; a run says what options set in other groups."""

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from tests.helpers.configs import OPTIONS
from wordle_rl.commands.train import describe_choices
from wordle_rl.runs.config import compose_config, list_brought, list_groups, quoted
from wordle_rl.runs.paths import CONF, ROOT

LINE = re.compile(r"(?:python train\.py|wordle-rl train)((?: +(?:[^\s`'#|]|'[^']*')+)+)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *CONF.glob("experiment/*.yaml")]


def find_commands() -> set[tuple[str, ...]]:
    """The settings of every line that trains.

    Left out are lines with a placeholder such as <run>, or with options of one's own.
    """
    commands = set()
    for page in PAGES:
        text = re.sub(r"\\\n#? *", " ", page.read_text(encoding="utf-8"))
        for words in (shlex.split(line) for line in LINE.findall(text)):
            settings = [word.rstrip(",.") for word in words if "=" in word and word[0] != "-"]
            blank = any(
                mark in word
                for word in words
                for mark in ("<", "...", "resume=", "sweep=", "--config-dir", "parts.", "vowel")
            )
            if not blank and not {"-m", "--help", "|"} & {*words}:
                commands.add(tuple(settings))
    return commands


COMMANDS = sorted(find_commands())


def test_the_pages_have_commands() -> None:
    assert len(COMMANDS) > 15 and ("algorithm=dapo", "num_generations=16") in COMMANDS


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_plain_hydra_composes_what_the_command_does(words, finished) -> None:
    settings = [re.sub("^init_from=.*", f"init_from={finished}", word) for word in words]
    settings = [word for word in settings if not word.startswith("output_dir=")]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        cfg = compose("config", overrides=[quoted(word) for word in settings])
    assert cfg == compose_config("config", settings)


# What an option chooses or sets in other groups, beside the settings of a model and an experiment.
PAIRS = {
    "rollout=turn": {"history": "upto4"},
    "curriculum=gated": {"reward@curriculum.first": "recipe/phase1_first"},
    "curriculum=linear": {"reward@curriculum.first": "recipe/phase1_first"},
    "curriculum=phases": {"reward@curriculum.first": "recipe/phase1_first"},
}


def test_what_an_option_brings_into_another_group_is_listed_and_told() -> None:
    pairs = {}
    for group in {*list_groups()} - {"model", "experiment", "sweep", "num_generations", "debug"}:
        for option in OPTIONS.get(group, []):
            items = list_brought(group, option).items()
            extras = {key: value for key, value in items if key.partition(".")[0] != group}
            if extras:
                pairs[f"{group}={option}"] = extras
    assert pairs == PAIRS
    for choice, extras in PAIRS.items():
        group, _, option = choice.partition("=")
        line = describe_choices({"choices": {group: option}, "typed": [choice]})
        text = " ".join(f"{key}={value}" for key, value in extras.items())
        assert f"; {choice} brings {text}; " in line


GROUPS = ["optim", "prompt", "reward"]  # groups in which a pretrained model chooses an option
MODELS = {"mini": ["prompt"], "lexicon": ["prompt"], "tiny": [], "micro": [], "untrained": []}
BACKENDS = dict.fromkeys(("gemma4b-mlx", "smollm2_sft"), ("backend", *GROUPS))


@pytest.mark.parametrize("name", OPTIONS["model"])
def test_the_options_that_a_model_chooses_are_listed(name: str) -> None:
    groups = {*list_groups()} - {"num_generations"}  # whose number is a setting, too
    choices = sorted({*list_brought("model", name)} & groups)
    assert choices == [*{**MODELS, **BACKENDS}.get(name, GROUPS)]


@pytest.mark.parametrize("curriculum", ["gated", "phases", "linear"])
@pytest.mark.parametrize(
    ("reward", "known"),
    [("information_allowed", "allowed"), ("free", "allowed"), ("phase2", "answers")],
)
def test_a_curriculum_knows_the_answers_only_where_the_reward_does(curriculum, reward, known):
    cfg = compose_config("config", [f"curriculum={curriculum}", f"reward={reward}"])
    assert cfg.curriculum.first.components.value.candidates == known


def test_wandb_and_debug_are_options_like_others(tmp_path: Path) -> None:
    cfg = compose_config("config", ["logger=wandb", "debug=true", "trainer.report=true"])
    assert (cfg.logger.wandb, cfg.logger.tensorboard) == (True, True)
    assert (cfg.trainer.steps, cfg.trainer.report) == (2, True)
