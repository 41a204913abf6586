"""Every shipped option composes and builds, and every key is used."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_dir

from tests.helpers.configs import GROUPS, OPTIONS, composed
from wordle_rl.commands.build import KEYS, build_experiment, resolve
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.paths import ROOT


@pytest.mark.parametrize(
    "choice",
    [f"{group}={option}" for group in GROUPS if group != "sweep" for option in OPTIONS[group]],
)
def test_every_option_builds_an_experiment(choice: str) -> None:
    # The weights of SmolLM2 may not be here.
    extra = ["model.path=embedded/micro"] if "smollm2" in choice else []
    setup = build_experiment(resolve(composed(choice, *extra)))
    assert setup.recipe.rollout.groups * setup.recipe.rollout.num_generations > 0


def names_read(node: ast.AST) -> Iterator[str]:
    """Attributes and constant keys that a piece of source reads, but not to check them."""
    match node:
        case ast.FunctionDef(name="__post_init__"):
            return
        case ast.Attribute(attr=name, ctx=ast.Load()):
            yield name
        case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            yield name
    for child in ast.iter_child_nodes(node):
        yield from names_read(child)


def test_every_setting_of_every_option_is_read_by_the_program() -> None:  # row 24
    # By name, so one that shares its name with another could hide behind it.
    read = {
        name
        for path in (ROOT / "wordle_rl").rglob("*.py")
        for name in names_read(ast.parse(path.read_text(encoding="utf-8")))
    }
    shipped = "".join(path.read_text() for path in (ROOT / "conf").rglob("*.yaml"))
    read |= set(re.findall(r"\$\{(?:\w+\.)*(\w+)\}", shipped))  # the default of another setting
    targets = set(re.findall(r"_target_: *(wordle_rl[\w.]+)", shipped))
    assert len(targets) > 20
    for target in sorted(targets):
        module, _, name = target.rpartition(".")
        fields = dataclasses.fields(getattr(importlib.import_module(module), name))
        assert {field.name for field in fields} <= read, target
    assert read >= KEYS


@pytest.mark.parametrize("key", ["num_generations", "rollout.num_generations"])
@pytest.mark.parametrize("chosen", ["rollout=game", "rollout=best_of", "experiment=quick"])
def test_any_number_of_generations_can_be_chosen_by_either_name(key: str, chosen: str) -> None:
    assert resolve(composed(chosen, f"{key}=12"))["rollout"]["num_generations"] == 12
    assert resolve(composed("model=gemma4b-mlx"))["rollout"]["num_generations"] == 4


def test_train_alone_is_the_demo() -> None:
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        assert compose("config") == composed("experiment=demo")


def test_a_model_alone_starts_from_its_own_settings_and_not_the_demos() -> None:
    assert compose_config("config", ["model=qwen3b", "reward=phase2"]) == composed(
        "experiment=none", "model=qwen3b", "reward=phase2"
    )
    chosen = ["experiment=demo", "model=micro"]
    assert compose_config("config", chosen) == composed(*chosen)


def test_a_model_may_choose_its_optimizer_and_the_command_line_overrules_it() -> None:
    def name(*overrides: str) -> str:
        return composed(*overrides).optim.name

    assert (name(), name("model=qwen3b")) == ("muon", "adamw")
    assert (name("optim=adamw"), name("model=qwen3b", "optim=muon")) == ("adamw", "muon")
    assert composed("optim=adamw", "optim.lr=0.5").optim.lr == 0.5
    assert composed("optim=adamw", "experiment=embedded/tiny").optim.beta2 == 0.95


def test_protocol_split_never_trains_on_a_test_or_validation_secret() -> None:
    setup = build_experiment(resolve(composed("words.protocol=split")))
    assert len(setup.test) == 315 and len(setup.validation) == 200
    assert not set(setup.recipe.secrets) & (set(setup.test) | set(setup.validation))
