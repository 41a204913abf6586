"""Stages: a run that starts from another run's model, and what must be as it was there."""

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import runs
from tests.helpers.commands import trained, training
from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, run
from wordle_rl.commands.build import resolve
from wordle_rl.commands.resume import begin_from
from wordle_rl.runs.config import flatten, list_brought, read_config
from wordle_rl.runs.files import write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.training import checkpoint as saving
from wordle_rl.training.lineage import RECORD, stages_of

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a new model with checkpoints of steps 0, 1 (marked as best) and 2."""
    ranks = itertools.count(0, -1)
    with pytest.MonkeyPatch.context() as patch:
        # With the start as its best, the run keeps all three.
        patch.setattr(saving, "rank_validation", lambda _: [float(next(ranks))] * 3)
        folder = trained(
            tmp_path_factory.mktemp("runs") / "small", "prompt=letters rollout.form=fresh"
        )
    (folder / "checkpoints" / "best").write_text("step_000001\n")
    return folder


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    """A copy of that run which a test may spoil."""
    return shutil.copytree(small, tmp_path / "run")


def start_from(source: Path, *options: str) -> tuple[Any, dict[str, Any]]:
    """The config of a run that starts from another, and what its manifest will say of that."""
    overrides = [f"init_from={source}", "words.test=6", "words.val=6", *options]
    config = composed(*overrides)
    start = begin_from(config)
    assert start is not None
    return config, start


def test_a_stage_takes_model_prompt_and_form_of_the_run_that_it_starts_from(small):
    config, _ = start_from(small, "algorithm=dapo", "model.max_tokens=9", "rollout.groups=7")
    assert config.prompt == composed("prompt=letters").prompt
    assert (config.rollout.form, config.rollout.groups) == ("fresh", 7)
    assert config.model.path == str(small / "checkpoints" / "step_000001" / "model")
    assert config.model.shape == {} and config.model.max_tokens == 9
    assert config.sampling.max_tokens == 9
    assert config.algorithm == composed("algorithm=dapo").algorithm


START = ("init_from", "init_checkpoint", "model.path", "model.name", "model.revision")


@pytest.mark.parametrize(
    ("typed", "anew"),
    [
        ("", ()),
        ("num_generations=8 reward=phase2", ("rollout.num_generations", "reward")),
        ("model.learning_rate=0.5", ("model.learning_rate", "optim.lr")),
        ("rollout=turn", ("rollout.kind", "history")),
        ("algorithm=grpo num_generations=2", ("algorithm", "data", "rollout.num_generations")),
        ("trainer.steps=7", ("trainer.steps",)),
        ("optim=adamw", ("optim.name",)),
    ],
)
def test_what_is_not_typed_stays_as_it_was_in_the_run(typed, anew, small):
    config, _ = start_from(small, *typed.split())
    values, record = flatten(resolve(config)), flatten(read_config(small))
    keys = {key for key in values.keys() | record.keys() if values.get(key) != record.get(key)}
    parts = (*START, *anew, "output_dir", "model.shape")
    assert not [key for key in keys if not key.startswith(parts)]
    defaults = flatten(resolve(composed(*typed.split(), "experiment=none"))) if typed else {}
    for key in (key for key in values if key.startswith(anew) and not key.startswith("data")):
        assert values[key] == defaults[key], key


def test_what_a_run_was_given_stays_unless_what_is_typed_takes_its_place(copy):
    record = read_config(copy)
    record["trainer"]["epochs"], record["optim"]["lr"] = 2.0, 0.125
    record["data"] = {**(record["data"] or {}), "path": "games.jsonl"}
    (copy / "config.yaml").write_text(json.dumps(record))
    base, _ = start_from(copy)
    assert (base.trainer.epochs, base.optim.lr, base.data.path) == (2.0, 0.125, "games.jsonl")
    variant, _ = start_from(copy, "trainer.steps=7")
    assert (variant.trainer.epochs, variant.trainer.steps) == (None, 7)
    grpo, _ = start_from(copy, "algorithm=grpo")
    assert grpo.data.path is None and grpo.optim.lr == 0.125


def test_a_recipe_that_is_typed_beside_a_run_brings_all_that_it_says(small):
    config, _ = start_from(small, "experiment=reinforce", "rollout.form=conversation")
    recipe = list_brought("experiment", "reinforce")
    values = flatten(resolve(config))
    assert values["rollout.kind"] == recipe["rollout"] and values["rollout.num_generations"] == "16"
    entries = {k: v for k, v in recipe.items() if "." in k}
    assert entries.items() <= values.items() and values["trainer.show_games"] == "0"


@pytest.mark.parametrize(
    ("backend", "stage"),
    [
        ("lightning", "sft"),
        pytest.param("mlx", "sft", marks=pytest.mark.slow),
        pytest.param("lightning", "lora", marks=pytest.mark.slow),
        pytest.param("mlx", "lora", marks=pytest.mark.slow),
    ],
)
def test_a_stage_begins_with_the_weights_of_the_one_before(backend, stage, tmp_path):  # row 17
    overrides = runs.settings(tmp_path, stage)
    if backend == "mlx":
        cpu_settings = {"backend.accelerator=cpu", "backend.threads=1"}
        overrides = ["backend=mlx", *(s for s in overrides if s not in cpu_settings)]
    overrides += ["trainer.steps=2", "trainer.report=false", "rollout.groups=2"]
    (tmp_path / "runs").mkdir()
    _, first = run(tmp_path / "runs", *overrides, "prompt=letters")
    prefixes = ("model", "backend=", "algorithm")  # what the first stage says of itself
    rest = [s for s in overrides if not s.startswith(prefixes)]
    second_overrides = [
        *rest,
        "algorithm=grpo",
        "algorithm.beta=0.1",
        f"init_from={first}",
        "init_checkpoint=last",
    ]
    _, second = run(tmp_path / "runs", *second_overrides)
    [weights] = (first / "checkpoints" / "step_000002" / "model").glob("*.safetensors")
    name = f"model/{weights.name}"
    assert (second / "checkpoints/step_000000" / name).read_bytes() == weights.read_bytes()
    assert (first / "checkpoints/step_000000" / name).read_bytes() != weights.read_bytes()
    # The reference is the start of this stage, so the first update sees no divergence from it.
    assert [metrics_of(second)[k]["policy/kl"] > 0 for k in (1, 2)] == [False, True]
    manifest = json.loads((second / "manifest.json").read_text())
    assert manifest["init_from"]["run"] == str(first) and manifest["prompt"] == "letters"
    origin = ("sft", "random_consistent") if stage == "sft" else ("grpo", None)
    stages = [
        {**stage_of(first, "letters", *origin), "start": "base"},
        stage_of(second, "letters", "grpo", None),
    ]
    for folder in (second / "model", *second.glob("checkpoints/step_*/model")):
        assert stages_of(shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)) == stages
    assert stages_of(first / "model") == stages[:1]
    assert runs.resume(second, "trainer.steps=3")["total_games"] == 3 * 2 * 2
    assert stages_of(second / "model") == stages


def stage_of(run: Path, prompt: str, algorithm: str, player: str | None) -> dict[str, Any]:
    """What a model that this run made must say of it."""
    manifest = RunFolder(run).manifest()
    words = (run.parent.parent / "words.txt").read_text().split()
    by_hash = sorted(words, key=lambda word: hashlib.sha256(word.encode()).hexdigest())
    secrets = hashlib.sha256("\n".join(sorted(by_hash[12:])).encode()).hexdigest()
    assert manifest["digests"]["secrets"] == secrets
    return {
        "run": run.name,
        "algorithm": algorithm,
        "player": player,
        "protocol": "split",
        "secrets": 60,
        "held_out": 12,
        "digests": manifest["digests"],
        "prompt": prompt,
        "form": "conversation",
    }


def test_the_stages_before_are_kept_whatever_the_last_one_was(
    tmp_path, refused: Callable
):  # row 38
    """A model that was taught on all words stays one that was."""
    folder = trained(tmp_path / "all", "words.protocol=all trainer.steps=1")
    record = json.loads((folder / "model" / RECORD).read_text())
    stage = record["stages"][0] | {"run": "later", "protocol": "split"}
    model = shutil.copytree(folder / "model", tmp_path / "m")
    write_json(model / RECORD, {"stages": [*record["stages"], stage]})
    line = refused(training(f"words.test=6 words.val=6 model.path={model}"))
    assert folder.name in line and "words.protocol=all" in line


MISMATCHES = {
    "prompt=symbols": "had prompt=letters prompt.think=false;",
    "prompt=letters prompt.think=true": "had prompt=letters prompt.think=false;",
    "rollout.form=conversation": "had rollout.form=fresh;",
    "words.protocol=all words.answers={list}": "had other word lists;",
}


@pytest.mark.parametrize("line", MISMATCHES)
@pytest.mark.parametrize(
    "way", ["init_from={run}", "prompt=letters rollout.form=fresh model.path={run}/model"]
)
def test_another_prompt_form_or_list_is_refused_unless_it_is_meant(
    line, way, small, tmp_path, refused: Callable, monkeypatch
):
    words = map("".join, itertools.product("bcd", "aei", "lmn", "o", "rs"))
    (tmp_path / "list.txt").write_text("\n".join(words))
    command = f"{way} words.test=6 words.val=6 {line}".format(run=small, list=tmp_path / "list.txt")
    error = refused(training(command))
    assert MISMATCHES[line] in error and str(small) in error and "allow_mismatch=true" in error
    monkeypatch.setattr("wordle_rl.commands.train.load_backend", lambda _: pytest.fail("reached"))
    with pytest.raises(pytest.fail.Exception, match="reached"):
        training(f"{command} allow_mismatch=true output_dir={tmp_path}")()
