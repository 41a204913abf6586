"""Training games whose secret may be any allowed word, in all groups or in a share of them."""

import json
import math
from collections import Counter
from collections.abc import Callable

import pytest

from tests.helpers.configs import composed
from tests.helpers.runs import metrics_of, run
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.training.lineage import stages_of
from wordle_rl.training.secrets import group_secrets, mix_secrets

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    line = ("words.allowed_share=0.3", "rollout.groups=32", "algorithm=dapo", "words.train=90")
    return build_experiment(resolve(composed(*line))).recipe


def sequence(letter: str) -> Callable[[range], list[str]]:
    return lambda places: [f"{letter}{place}" for place in places]


@pytest.mark.parametrize("share", [0.0, 0.29, 0.5, 1.0])
def test_the_share_is_kept_and_both_sequences_are_played_without_gaps(share):
    secrets = []
    for step in range(25):
        secrets += mix_secrets(range(step * 8, step * 8 + 8), share, sequence("t"), sequence("a"))
    kinds = Counter(name[0] for name in secrets)
    assert kinds["a"] == round(share * 200) and kinds["t"] == 200 - kinds["a"]
    for kind in "ta":
        names = [name for name in secrets if name[0] == kind]
        assert names == [f"{kind}{place}" for place in range(len(names))]


def test_a_share_of_the_groups_has_secrets_that_are_no_answers(recipe):
    steps = [group_secrets(recipe, step, range(32)) for step in range(40)]
    assert steps == [group_secrets(recipe, step, range(32)) for step in range(40)]
    secrets = [secret for step in steps for secret in step]
    words = [secret for secret in secrets if secret not in recipe.secrets]
    # 30 % of 1,280 are 384, and 90 of the 12,457 words are training secrets of this run
    assert 375 <= len(words) <= 384 and len(set(words)) == len(words)
    counts = Counter(secret for secret in secrets if secret in recipe.secrets)
    assert min(counts.values()) >= 9  # 896 groups are almost 10 epochs of 90 secrets


def test_each_process_plays_its_part_of_the_same_secrets(recipe):
    draws = group_secrets(recipe, 5, range(32))
    assert [*group_secrets(recipe, 5, range(16)), *group_secrets(recipe, 5, range(16, 32))] == draws
    extra = group_secrets(recipe, 5, range(32, 52))
    halves = [*group_secrets(recipe, 5, range(32, 42)), *group_secrets(recipe, 5, range(42, 52))]
    assert halves == extra


def test_no_held_out_secret_is_ever_played(recipe):  # row 38
    setup = build_experiment(resolve(composed("words.protocol=allowed")))
    held_out = {*setup.validation, *setup.test}
    assert len(held_out) == 515
    assert not held_out & {*setup.recipe.secrets} and not held_out & {*recipe.allowed_secrets}


# -- runs -----------------------------------------------------------------------------------------

KINDS = {
    "a share, replacements": ["words.allowed_share=0.5", "algorithm=dapo", "algorithm.resample=2"],
    "imitation": [
        "words.protocol=allowed",
        "algorithm=distill",
        "algorithm.player=random_consistent_allowed",
        "num_generations=1",
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_on_allowed_words_and_records_it(kind, tmp_path):  # row 38
    settings = [
        "model=untrained",
        "model.shape={hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate_size: 64}",
        "num_generations=2",
        "words.test=6",
        "words.val=6",
        "rollout.groups=4",
        "logger=none",
        "backend.precision=fp32",
        "backend.accelerator=cpu",
        "backend.threads=1",
        "trainer.steps=2",
        "trainer.show_games=0",
        "trainer.games_every=1",
    ]
    summary, folder = run(tmp_path, *settings, *KINDS[kind])
    share = 0.5 if "share" in kind else None
    for step in metrics_of(folder)[1:]:
        # A step whose groups have no spread has no update.
        assert step["train/games"] > 0 and math.isfinite(step.get("loss", 0.0))
        assert 0.0 <= step["train/answers"] < 1.0
    [stage] = stages_of(folder / "model")
    assert (stage["secrets"], stage["held_out"], stage.get("allowed_share")) == (12_960, 12, share)
    assert stage["start"] == "untrained"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"run": folder.name, **{k: manifest[k] for k in stage if k != "run"}} == stage
    assert "12,960 allowed words" in summary["lineage"]
    assert summary["lineage"].endswith("No test secret was ever the secret of a training game.")
    assert summary["start"]["lineage"].startswith("lineage: an untrained model.")
    secrets = [
        json.loads(game)["secret"]
        for game in (folder / "games.jsonl").read_text().splitlines()
        if json.loads(game).get("split") != "val"
    ]
    setup = build_experiment(resolve(composed(*settings[2:5])))
    assert secrets and not {*secrets} & {*setup.test, *setup.validation}
    assert any(secret not in setup.words.answer_index for secret in secrets)
