"""What docs/INSIDE.md says of adding a reward, followed to the letter."""

import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from wordle_rl import rewards
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.experiment import Experiment

GUIDE = (ROOT / "docs" / "INSIDE.md").read_text(encoding="utf-8")
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
    folder = tmp_path / "wordle_rl" / "rewards"
    monkeypatch.setattr(rewards, "__path__", [*rewards.__path__, str(folder)])
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def build_setup(root: Path, *overrides: str) -> Experiment:
    words = root / "words.txt"
    letters = itertools.product("bcdf", "a", "mnp", "el")
    words.write_text("\n".join("".join([*stem, "s"]) for stem in letters) + "\n")
    settings = ["experiment=none", f"words.answers={words}", "words.test=3", "words.val=3"]
    with initialize_config_dir(version_base="1.3", config_dir=str(root / "conf")):
        return build_experiment(resolve(compose("config", overrides=[*settings, *overrides])))


def test_the_new_reward_can_be_chosen_and_overridden(root):
    setup = build_setup(root, "reward=phase2_vowel", "reward.components.vowel.bonus=0.2")
    vowel: Any = setup.recipe.rewards.components["vowel"]
    assert vowel.bonus == 0.2


def test_the_test_of_the_guide_passes(root):
    [(path, source)] = [step for step in STEPS.items() if step[0].startswith("tests/")]
    names: dict[str, Any] = {}
    exec(compile(source, path, "exec"), names)  # as pytest would import it
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test()
