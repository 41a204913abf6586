"""docs/ADDING.md, followed to the letter: new files alone, and the parts are there."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from tests.helpers.configs import OPTIONS, composed
from wordle_rl import algorithms, rewards
from wordle_rl.commands.build import PLAYERS, build_experiment, resolve
from wordle_rl.commands.players import EvalSettings, build_scripted
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.instantiate import ConfigError, instantiate, option_of
from wordle_rl.runs.paths import ROOT
from wordle_rl.training import curricula
from wordle_rl.training.curricula.base import Curriculum
from wordle_rl.training.experiment import Experiment
from wordle_rl.words.lists import WordLists

GUIDE = (ROOT / "docs" / "ADDING.md").read_text(encoding="utf-8")
_STEP = re.compile(r"^\d\. `([^`]+)`(?:(?!^\d\. ).)*?^ *```\w+\n(.*?)^ *```", re.M | re.S)
STEPS = {path: textwrap.dedent(text) for path, text in _STEP.findall(GUIDE)}


def follow(root: Path) -> None:
    """Write the files of all steps."""
    for path, text in STEPS.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with conf/ and the files of all steps, whose modules can be imported."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    follow(tmp_path)
    for package in (algorithms, curricula, rewards):
        folder = tmp_path / package.__name__.replace(".", "/")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def built(root: Path, *overrides: str) -> Experiment:
    words = root / "words.txt"
    letters = itertools.product("bcdf", "a", "mnp", "el")
    words.write_text("\n".join("".join([*four, "s"]) for four in letters) + "\n")
    small = ["words=custom", f"words.answers={words}", "words.test=3", "words.val=3"]
    with initialize_config_dir(version_base="1.3", config_dir=str(root / "conf")):
        return build_experiment(resolve(compose("config", overrides=[*small, *overrides])))


def test_each_kind_of_part_is_one_file_one_yaml_file_and_one_test():
    assert not any((ROOT / path).exists() for path in STEPS)
    kinds = [[path.partition("/")[0] for path in STEPS][i : i + 3] for i in range(0, 9, 3)]
    assert kinds == [["wordle_rl", "conf", "tests"]] * 3 and len(STEPS) == 9


def test_the_new_parts_can_be_chosen_and_overridden(root):
    chosen = ["reward=phase2_vowel", "curriculum=raise_win", "algorithm=step_mean"]
    given = ["reward.components.vowel.bonus=0.2", "curriculum.factor=3", "algorithm.epochs=2"]
    setup = built(root, *chosen, *given)
    vowel: Any = setup.recipe.rewards.components["vowel"]
    taught: Any = setup.curriculum
    assert (vowel.bonus, taught.factor, setup.recipe.algorithm.epochs) == (0.2, 3, 2)
    assert [option_of(part) for part in (taught, setup.recipe.algorithm)] == [
        "raise_win",
        "step_mean",
    ]
    with pytest.raises(ConfigError, match=r"curriculum=raise_win .* rollout=turn"):
        built(root, *chosen, "rollout=turn")


@pytest.mark.parametrize("path", [path for path in STEPS if path.startswith("tests/")])
def test_the_tests_of_the_guide_pass(path, root):
    names: dict[str, Any] = {}
    exec(compile(STEPS[path], path, "exec"), names)  # as pytest would import it
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test()


@pytest.mark.slow
def test_no_test_that_reads_conf_minds_the_new_parts(tmp_path):
    for name in ("wordle_rl", "conf", "tests", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "train.py", "eval.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    follow(tmp_path)
    files = (
        *("commands/test_configs", "commands/test_wrong_input", "rewards/test_laws"),
        *("rewards/test_scoring", "training/test_curricula", "algorithms/test_every_algorithm"),
    )
    new = [path for path in STEPS if path.startswith("tests/")]
    chosen = "vowel or raise_win or step_mean or no_such or shipped or every_setting"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *new]
        + [f"tests/{file}.py" for file in files],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False,
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def test_the_guide_shows_the_rollouts_of_single_guesses_as_they_are():
    assert (ROOT / "wordle_rl" / "rollouts" / "turn.py").read_text(encoding="utf-8") in GUIDE


@pytest.mark.parametrize("group", ["rollout", "curriculum"])
def test_options_are_called_as_the_file_of_their_class(group):
    # Messages name the option of a part, and go by its file.
    for name in OPTIONS[group]:
        assert composed(f"{group}={name}")[group]["_target_"].split(".")[-2] == name


def test_a_class_of_another_kind_is_told_what_it_lacks():
    win = {"_target_": "wordle_rl.rewards.win.Win"}
    with pytest.raises(ConfigError, match="must be a subclass of PromptStyle"):
        instantiate("prompt", win, PromptStyle)
    with pytest.raises(ConfigError, match="must be a subclass of Curriculum"):
        instantiate("curriculum", win, Curriculum)


MISTAKES = {  # in a new part's module, and what is said of it
    "import wordle_rl.gamme": "cannot be imported: No module named 'wordle_rl.gamme'",
    "from wordle_rl.game.rules import Plann": "cannot be imported: cannot import name 'Plann'",
    "class Vowl: ...": "has no Vowel",
    "class Vowel: ...": "lacks @dataclass",
}


@pytest.mark.parametrize("source", MISTAKES)
def test_what_is_wrong_with_a_module_is_told(source, root):
    (root / "wordle_rl" / "rewards" / "vowel.py").write_text(source + "\n")
    key = r"reward\.components\.vowel\._target_"
    with pytest.raises(ConfigError, match=f"{key} .*{re.escape(MISTAKES[source])}"):
        built(root, "reward=phase2_vowel")


def test_rewards_of_a_first_step_that_break_a_law_are_refused_before_it(root):
    path = root / "wordle_rl" / "training" / "curricula" / "raise_win.py"
    path.write_text(path.read_text().replace("self._raised = False", "self._raised = True"))
    with pytest.raises(ValueError, match=r"exactly one win component .* not win of weight 0"):
        built(root, "curriculum=raise_win", "curriculum.factor=0")


@pytest.mark.parametrize("name", PLAYERS)
def test_players_that_can_be_imitated_can_be_evaluated(name):
    words = WordLists(answers=("crane", "salet"), allowed=("crane", "salet"))
    assert (
        build_scripted(EvalSettings(player=name), Knowledge(words, build_table(words))) is not None
    )
