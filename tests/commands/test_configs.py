"""Every shipped option composes and builds, every key is used, and every number has a range."""

import ast
import dataclasses
import importlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import yaml

from tests.helpers.configs import GROUPS, OPTIONS, composed
from wordle_rl.commands.build import KEYS, build_experiment, resolve
from wordle_rl.commands.report import default_settings
from wordle_rl.commands.train import describe_choices
from wordle_rl.runs.config import compose_config, keep_config
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.paths import CONF, ROOT
from wordle_rl.training.experiment import TrainerSettings


@pytest.mark.parametrize(
    "choice",
    [f"{group}={option}" for group in GROUPS if group != "sweep" for option in OPTIONS[group]],
)
def test_every_option_builds_an_experiment(choice: str) -> None:
    extras = ["model=pretrained"] if re.search("imitate|reinforce", choice) else []
    if extras or re.search("smollm2|=pretrained|270m|-coder", choice):  # no weights are here
        extras.append("model.path=embedded/micro")
    if choice.endswith("=opd"):
        extras.append("algorithm.reference=mini")
    if choice == "logger=wandb":
        pytest.importorskip("wandb")
    if choice == "num_generations=1":
        extras.append("algorithm=sft")  # which compares nothing
    setup = build_experiment(resolve(composed(choice, *extras)))
    assert setup.recipe.rollout.groups * setup.recipe.rollout.num_generations > 0


# Whose shipped values are not the defaults. The program fills in the budget.
FIELDS = {"grpo": {"beta"}, "dr_grpo": {"budget"}, "ppo": {"kl"}, "rloo": {"kl"}, "max_rl": {"kl"}}


@pytest.mark.parametrize("name", OPTIONS["algorithm"])
def test_an_algorithm_is_shipped_with_the_defaults_whose_numbers_are_tested(name: str) -> None:
    overrides = ["algorithm.reward_weight=1"] if name == "opd" else []
    config = composed(f"algorithm={name}", *overrides)
    algorithm = build_experiment(resolve(config)).recipe.algorithm
    fields = {field.name: field.default for field in dataclasses.fields(algorithm)}
    changes = {key for key, value in fields.items() if getattr(algorithm, key) != value}
    assert changes - {"importance_cap", "reward_weight"} == FIELDS.get(name, set())


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
    names = {
        name
        for path in (ROOT / "wordle_rl").rglob("*.py")
        for name in names_read(ast.parse(path.read_text(encoding="utf-8")))
    }
    text = "".join(path.read_text() for path in (ROOT / "conf").rglob("*.yaml"))
    names |= set(re.findall(r"\$\{(?:\w+\.)*(\w+)\}", text))  # the default of another setting
    targets = set(re.findall(r"_target_: *(wordle_rl[\w.]+)", text))
    assert len(targets) > 20
    for target in sorted(targets):
        module, _, name = target.rpartition(".")
        fields = dataclasses.fields(getattr(importlib.import_module(module), name))
        assert {field.name for field in fields} <= names, target
    assert names >= KEYS


@pytest.mark.parametrize("key", ["num_generations", "+num_generations", "rollout.num_generations"])
@pytest.mark.parametrize("chosen", ["rollout=game", "rollout=best_of", "experiment=quick"])
def test_any_number_of_generations_can_be_chosen_by_either_name(key: str, chosen: str) -> None:
    assert resolve(composed(chosen, f"{key}=12"))["rollout"]["num_generations"] == 12
    assert resolve(composed("model=gemma4b-mlx"))["rollout"]["num_generations"] == 4


def test_the_model_and_the_options_that_run_anyway_change_nothing_when_they_are_typed() -> None:
    demo = compose_config("config")
    choices = {"reward": "information_allowed", "rollout": "game", "optim": "muon", "model": "mini"}
    assert all(compose_config("config", [f"{k}={v}"]) == demo for k, v in choices.items())
    assert (demo.trainer.steps, demo.words.allowed_share, demo.rollout.groups) == (40, 0.5, 64)


def test_a_model_wins_over_the_demo_an_experiment_over_both_and_what_is_typed_over_all() -> None:
    def rate(*overrides: str) -> tuple[float, int, str]:
        cfg = compose_config("config", overrides)
        return cfg.optim.lr, cfg.trainer.steps, cfg.prompt._target_.rpartition(".")[2]

    model, recipe = "model=qwen3b", "experiment=imitate"
    assert rate() == (1e-3, 40, "Places")
    assert rate(model, "reward=phase2") == (1e-5, 100, "WholeState")
    assert rate(recipe, model) == (5e-4, 880, "Spelled")
    assert rate("optim.lr=0.1", "prompt=letters", recipe, model) == (0.1, 880, "Letters")


@pytest.mark.parametrize(
    "experiment", ["qwen1.5b_mac", "qwen3b_server", "imitate", "reinforce", "reinforce_words"]
)
def test_a_typed_option_is_as_its_file_says_whatever_an_experiment_made_of_another(experiment):
    files = ("reward/phase2", "algorithm/dapo", "model/qwen1.5b-coder", f"experiment/{experiment}")
    nodes = (yaml.safe_load((CONF / f"{file}.yaml").read_text()) for file in files)
    reward, algorithm, model, recipe = nodes
    args = ("reward=phase2", "algorithm=dapo", "model=qwen1.5b-coder", f"experiment={experiment}")
    base = compose_config("config", args)
    assert (base.reward, base.algorithm) == (reward, algorithm)
    assert (base.model.name, base.model.path) == (model["model"]["name"], model["model"]["path"])
    assert base.model.lora == recipe.get("model", {}).get("lora", model["model"]["lora"])
    cfg = compose_config("config", [*args, "model.path=a/b", "reward.components.win.weight=9"])
    assert (cfg.model.path, cfg.reward.components.win.weight) == ("a/b", 9)


@pytest.mark.parametrize("place", ["Qwen/Qwen2.5-0.5B-Instruct", "{folder}"])
def test_a_hub_name_or_a_folder_is_a_model_in_one_word(place: str, tmp_path: Path) -> None:
    place = place.format(folder=tmp_path)
    cfg = compose_config("config", [f"model={place}", "reward=win_only"])
    args = ["model=pretrained", f"model.path={place}", f"model.name={place.split('/')[-1]}"]
    assert cfg == compose_config("config", ["reward=win_only", *args])
    assert cfg.model.lora.rank == 8 and cfg.optim.name == "adamw"


@pytest.mark.parametrize("command", ["config", "eval"])
@pytest.mark.parametrize("taught", ["spelled", "state prompt.wording=shown prompt.think=true"])
def test_an_adapter_brings_its_rank_and_the_prompt_that_it_was_taught(command, taught, tmp_path):
    (tmp_path / "adapter_config.json").touch()
    record = {"stages": [{"run": "a", "prompt": "letters"}, {"run": "b", "prompt": taught}]}
    (tmp_path / "wordle_rl.json").write_text(json.dumps(record))
    model, think = f"model={tmp_path}", "prompt.think=" + str("true" in taught).lower()
    args = ["model.lora=null", *f"prompt={taught} {think}".split()]
    assert compose_config(command, [model]) == compose_config(command, [model, *args])
    lora = "model.lora={rank: 3, alpha: 6, dropout: 0.0, targets: all-linear}"
    words = ["prompt=places", lora]  # as in a folder that brings nothing
    cfg = compose_config(command, [f"model={tmp_path.parent}", f"model.path={tmp_path}", *words])
    cfg.model.name = tmp_path.name
    assert compose_config(command, [model, *words]) == cfg


@pytest.mark.parametrize("command", ["config", "eval"])
@pytest.mark.parametrize("option", [[], ["model=micro"]])
def test_a_foreign_model_never_gets_the_settings_of_an_embedded_one(command, option) -> None:
    hub = "model.path=Qwen/Qwen3-4B"
    with pytest.raises(ConfigError, match="give model=Qwen/Qwen3-4B"):
        compose_config(command, [*option, hub])
    compose_config(command, ["model=qwen3b", hub])
    compose_config(command, [*option, "model.path=embedded/lexicon"])


def test_the_line_of_choices_names_what_the_model_brought_and_what_the_user_chose() -> None:
    def line(model: str, *args: str, **entries: object) -> str:
        choice = {"model": model, "experiment": "imitate"} if "experiment=imitate" in args else {}
        return describe_choices({"choices": {"model": model, **choice}, "typed": args, **entries})

    args = ("model=qwen3b", "optim=muon")
    assert "; model=qwen3b brings prompt=state_think reward=phase2 model." in line("qwen3b", *args)
    assert line("qwen3b", *args).endswith("; you chose model=qwen3b optim=muon")
    assert "optim=adamw" not in line("qwen3b", *args)
    assert "prompt=state" not in line("smollm2", "experiment=imitate")
    reinforce = {"model": "smollm2", "experiment": "reinforce"}
    text = describe_choices({"choices": reinforce, "typed": ["experiment=reinforce"]})
    assert "experiment=reinforce brings" in text and "???" not in text
    assert "model=micro brings 8 settings; " in line("micro", "model=micro", "optim.lr=0.1")
    assert "num_generations=12" in line("mini", "num_generations='12'")
    note = line("mini", "init_from=latest", "reward=phase2", init_from={"run": "outputs/one"})
    assert note == "choices: the settings of outputs/one; you chose reward=phase2"
    manifest = {"choices": {"experiment": "imitate"}, "init_from": {"run": "outputs/one"}}
    assert "brings" not in describe_choices(manifest), "what the run before chose is its own"


def test_a_run_is_compared_with_what_its_kind_has_by_default(tmp_path: Path) -> None:
    for number, entry in enumerate(
        ({"choices": {"model": "qwen3b", "reward": "win_only"}}, {"init_from": {"run": "0"}})
    ):
        folder = RunFolder.create(tmp_path, str(number))
        if "init_from" in entry:
            entry = {"init_from": {"run": str(min(tmp_path.iterdir()))}}
        keep_config(folder, resolve(composed("model=qwen3b", "reward=win_only", "seed=9")))
        folder.write_manifest(**entry)
        defaults, seed = default_settings(folder), ("0", "9")[number]
        assert (defaults["model.name"], defaults["seed"]) == ("qwen3b", seed)
        assert ("reward.components.value.weight" in defaults) is (number == 0)


def test_a_model_may_choose_its_optimizer_and_the_command_line_overrules_it() -> None:
    def name(*overrides: str) -> str:
        return composed(*overrides).optim.name

    assert (name(), name("model=qwen3b")) == ("muon", "adamw")
    assert (name("optim=adamw"), name("model=qwen3b", "optim=muon")) == ("adamw", "muon")
    assert composed("optim=adamw", "optim.lr=0.5").optim.lr == 0.5
    assert composed("optim=adamw", "experiment=imitate", "model=smollm2").optim.beta2 == 0.95


def test_protocol_split_never_trains_on_a_test_or_validation_secret() -> None:
    setup = build_experiment(resolve(composed("words.protocol=split")))
    assert len(setup.test) == 315 and len(setup.validation) == 200
    assert not set(setup.recipe.secrets) & (set(setup.test) | set(setup.validation))


# -- numbers ---------------------------------------------------------------------------------------

CONF_TEXT = "".join(path.read_text() for path in (ROOT / "conf").rglob("*.yaml"))
CLASSES = sorted(
    {
        *re.findall(r"_target_: *(wordle_rl[\w.]+)", CONF_TEXT),
        "wordle_rl.commands.eval_players.EvalSettings",
        "wordle_rl.policy.settings.LoraSettings",
        *(f"wordle_rl.sweeps.plan.{kind}Settings" for kind in ("Study", "Budget", "Analysis")),
    }
)
# Filled in by the program, or compared with the word lists.
EXCEPTIONS = {
    "DrGrpo": {"budget"},
    "Replay": {"groups"},
    "RewardSet": {"weights"},
    "WordSettings": {"test", "val"},
}


def is_bare(hint: Any) -> bool:
    """Whether a type takes any number."""
    if get_origin(hint) is Annotated:
        return False
    return hint in (int, float) or any(map(is_bare, get_args(hint)))


@pytest.mark.parametrize("target", CLASSES)
def test_every_number_among_the_settings_has_a_range(target: str) -> None:
    module, _, name = target.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name for field in dataclasses.fields(cls) if is_bare(hints[field.name])}
    assert fields == EXCEPTIONS.get(name, set())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**20, -1, True, "abc"])
@pytest.mark.parametrize("name", ["steps", "validate_every", "validation_temperature"])
def test_a_number_out_of_its_range_is_refused_by_name(name: str, value: object) -> None:
    node = resolve(composed())["trainer"]
    with pytest.raises(ConfigError, match=rf"^trainer\.{name} must be [^\n]*, not [^\n]*$"):
        instantiate("trainer", {**node, name: value}, TrainerSettings)


@pytest.mark.parametrize("value", [10**20, math.nan, True])
def test_a_weight_and_a_seed_have_ranges_too(value: object) -> None:
    config = resolve(composed())
    with pytest.raises(ValueError, match="seed must be"):
        build_experiment({**config, "seed": value})
    config["reward"]["components"]["win"]["weight"] = value
    with pytest.raises(ValueError, match=r"reward\.components\.win\.weight must be"):
        build_experiment(config)
