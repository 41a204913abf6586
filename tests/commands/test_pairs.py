"""Experiments, models and backends: a pair composes to something sensible, or is refused."""

import json
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from tests.helpers.configs import OPTIONS
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.models import EMBEDDED
from wordle_rl.runs.config import SMALL_MODELS, compose_config, list_brought
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF
from wordle_rl.training.experiment import Experiment

FOR_SMALL = {"all", "clean", "none", "quick", "study"}
RECIPES = ("imitate", "reinforce", "reinforce_words")
FOR_PRETRAINED = {*RECIPES, "gemma4b_mac", "qwen1.5b_mac", "qwen3b_server"}


def build(*overrides: str) -> Experiment:
    """The experiment of a command. The weights of pretrained models are not here."""
    cfg = compose_config("config", overrides)
    if not str(cfg.model.path).startswith("embedded/") and cfg.model.path != "untrained":
        cfg.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    if cfg.model.path == "embedded/smollm2_sft":  # an adapter for a model that is fetched
        cfg.model.path, cfg.model.lora = "Qwen/Qwen2.5-0.5B-Instruct", {"rank": 16, "alpha": 32}
    return build_experiment(resolve(cfg))


def broken_laws(setup: Experiment, small: bool) -> Iterator[str]:
    recipe, trainer, tokens = setup.recipe, setup.trainer, setup.recipe.sampling.max_tokens
    if recipe.style.think and tokens < 64:
        yield f"thoughts in {tokens} tokens"
    if type(recipe.style).__name__ == "Spelled" and tokens < 12:
        yield f"letters apart in {tokens} tokens"
    if not small and setup.model.lora is None:
        yield "every weight of a pretrained model"
    if not small and (setup.optim.name != "adamw" or setup.optim.lr > 1e-3):
        yield f"{setup.optim.name} at {setup.optim.lr}"
    if not small and recipe.allowed_share:
        yield "rare words as secrets"
    validations = 1 + -(-trainer.steps // trainer.validate_every)
    val_games = validations * len(setup.validation) * trainer.validation_samples
    games = trainer.steps * recipe.rollout.groups * recipe.rollout.num_generations
    if val_games > games:
        yield f"{val_games} games of validation for {games} of training"


def test_every_experiment_and_every_model_is_of_a_kind():
    names = {
        path.relative_to(CONF / "experiment").with_suffix("").as_posix()
        for path in (CONF / "experiment").rglob("*.yaml")
    }
    assert names == FOR_SMALL | FOR_PRETRAINED and {*OPTIONS["model"]} > {*SMALL_MODELS}


def test_the_small_models_are_those_whose_record_begins_untrained():
    paths = {name: list_brought("model", name).get("model.path") for name in OPTIONS["model"]}
    records = {
        name: json.loads((EMBEDDED / file.removeprefix("embedded/") / "wordle_rl.json").read_text())
        for name, file in paths.items()
        if file is not None and file.startswith("embedded/")
    }
    begun = {n for n, record in records.items() if record["stages"][0].get("start") == "untrained"}
    assert {*SMALL_MODELS} == begun | {name for name, file in paths.items() if file == "untrained"}


@pytest.mark.parametrize("backend", ["lightning", pytest.param("mlx", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "experiment",
    [
        None,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in sorted((FOR_SMALL | FOR_PRETRAINED) - {"none"})
        ),
    ],
)
def test_a_pair_is_sensible_or_refused(experiment: str | None, backend: str) -> None:
    for model in sorted(OPTIONS["model"]):
        overrides = [f"model={model}", f"backend={backend}"]
        if experiment is not None:
            overrides.append(f"experiment={experiment}")
        if model == "pretrained":
            overrides.append("model.path=some/model")
        small = model in SMALL_MODELS
        mismatch = experiment in (FOR_PRETRAINED if small else FOR_SMALL - {"study"})
        own_backend = {"gemma4b-mlx": "mlx", "smollm2_sft": "lightning"}
        if mismatch or own_backend.get(model, backend) != backend:
            with pytest.raises(ConfigError, match=r"made for|needs backend="):
                build(*overrides)
            continue
        try:
            setup = build(*overrides)
        except (ConfigError, ValueError) as error:
            assert _is_about(str(error), overrides), (overrides, error)
            continue
        assert not [*broken_laws(setup, small)], overrides


def _is_about(line: str, overrides: Sequence[str]) -> bool:
    """Whether the one line of a refusal names what cannot go together."""
    return "\n" not in line and any(
        word in line for word in ("model.shape", "model.quantize", "backend has no setting")
    )


@pytest.mark.parametrize(
    ("recipe", "model"), [*product(RECIPES, ("qwen3b", "smollm2", "some/model"))]
)
def test_a_recipe_is_the_same_with_every_pretrained_model(recipe: str, model: str) -> None:
    setup = build(f"experiment={recipe}", f"model={model}")
    style, sampling = setup.recipe.style, setup.recipe.sampling
    assert (type(style).__name__, style.think, sampling.max_tokens) == ("Spelled", False, 16)
    assert style.wording == "brief"  # as the shipped adapters were taught
    assert setup.recipe.rollout.kind == ("game" if recipe == "imitate" else "best_of")
    assert (sampling.grammar, sampling.repeats) == (
        ("words", False) if recipe == "reinforce_words" else (None, True)
    )


@pytest.mark.parametrize(("model", "how"), [("qwen0.5b-coder", "shown"), ("smollm2_sft", "brief")])
def test_a_model_that_copies_is_shown_answers_and_an_adapter_asked_as_it_was_taught(model, how):
    assert build(f"model={model}").recipe.style.wording == how
