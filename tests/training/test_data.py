"""Training on a file: which rows a step takes, what a run records, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import runs
from tests.helpers.commands import training
from tests.helpers.configs import composed
from tests.helpers.rows import pair, predibase, write_rows
from tests.helpers.runs import metrics_of, run
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Clue, feedback_code
from wordle_rl.rollouts.given import GivenState
from wordle_rl.training.lineage import describe_secrets, is_clean, stages_of
from wordle_rl.training.secrets import group_states

pytestmark = pytest.mark.usefixtures("quiet")

SHAPE = "model.shape={hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate_size: 64}"
SMALL = [
    "model=untrained",
    SHAPE,
    "words.test=6",
    "words.val=6",
    "rollout.groups=4",
    "num_generations=2",
    "backend.precision=fp32",
    "backend.accelerator=cpu",
    "backend.threads=1",
    "logger=none",
    "trainer.report=false",
    "trainer.show_games=0",
    "trainer.games_every=1",
    "trainer.validate_every=9",
    "trainer.checkpoint_every=1",
]
SFT = ["algorithm=sft", "num_generations=1"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLE_RL_CACHE", str(tmp_path / "cache"))


def held_out() -> tuple[str, ...]:
    setup = build_experiment(resolve(composed("words.test=6", "words.val=6")))
    return (*setup.test, *setup.validation)


def states_of(tmp_path: Path, number: int = 10) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """A file of states with 0 to 2 guesses, and the guesses of each secret."""
    setup = build_experiment(resolve(composed()))
    guesses = {s: ("slate", "crony")[: i % 3] for i, s in enumerate(setup.recipe.secrets[:number])}
    rows = [predibase(secret, *words) for secret, words in guesses.items()]
    return write_rows(tmp_path / "states.jsonl", rows), guesses


def answers_of(tmp_path: Path, number: int = 6, **fields: Any) -> Path:
    return write_rows(tmp_path / "answers.jsonl", [pair(i, **fields) for i in range(number)])


# -- which rows ------------------------------------------------------------------------------------


STATES = tuple(
    GivenState(secret=secret, clues=(Clue(guess, feedback_code(guess, secret)),) * (i % 2))
    for i, (secret, guess) in enumerate([("crane", "slate"), ("abbey", "sleep")] * 5)
)


@pytest.fixture(scope="module")
def recipe():
    return build_experiment(resolve(composed("rollout.groups=4"))).recipe


def test_each_epoch_takes_every_row_once_in_a_new_order(recipe):
    places = [GivenState(secret=f"{i:05}") for i in range(10)]
    drawn = [s.secret for step in range(5) for s in group_states(recipe, places, step, range(4))]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == [place.secret for place in places]
    assert drawn[:10] != drawn[10:]
    order = np.random.default_rng([recipe.seed, 0]).permutation(10)
    assert drawn[:10] == [places[i].secret for i in order]


def test_a_secret_that_is_played_again_takes_turns_with_its_rows(recipe):
    replay = replace(recipe, replayed=("abbey",))
    steps = [group_states(replay, STATES, step, range(4)) for step in range(5)]
    assert all(states[3].secret == "abbey" for states in steps)
    assert len({id(states[3]) for states in steps}) == 5
    plans = [group_states(recipe, STATES, step, range(4))[:3] for step in range(5)]
    assert [states[:3] for states in steps] == plans


# -- runs ------------------------------------------------------------------------------------------


def test_games_begin_in_the_states_of_the_rows_and_the_lineage_says_so(
    tmp_path, root, capsys
):  # row 38
    path, guesses = states_of(tmp_path)
    _, folder = run(root, *SMALL, f"data={path}", "data.split=train[:80%]", "trainer.epochs=2")
    output = capsys.readouterr().out
    assert "states.jsonl: trains on 8 of 8 rows" in output and "2 epochs of 8 rows" in output
    games = [json.loads(line) for line in (folder / "games.jsonl").read_text().splitlines()]
    secrets = {game["secret"] for game in games if game["split"] == "train"}
    assert secrets == {*list(guesses)[:8]}
    steps = metrics_of(folder)[1:]
    assert len(steps) == 4  # two epochs of 8 rows in groups of 4
    depth = np.mean([len(guesses[s]) for s in list(guesses)[:8]])
    assert np.mean([step["train/earlier_guesses"] for step in steps]) == pytest.approx(depth)
    [stage] = stages_of(folder / "model")
    assert stage["data"]["file"] == "states.jsonl" and stage["data"]["rows"] == 8
    assert stage["data"]["secrets"].split() == sorted(list(guesses)[:8]) and stage["secrets"] == 8
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["data"] == stage["data"]
    assert describe_secrets(stage) == "states.jsonl: 8 secrets"
    assert "No test secret was ever the secret" in output


def test_a_run_whose_file_has_changed_does_not_resume(tmp_path, root, refused):
    path = answers_of(tmp_path, secret="crane")
    _, folder = run(root, *SMALL, *SFT, f"data={path}", "trainer.epochs=1")
    line = refused(lambda: runs.resume(folder, "trainer.steps=9"))
    assert "the steps of this run follow from trainer.epochs=1" in line
    line = refused(lambda: runs.resume(folder, f"data={path}"))
    assert "a resumed run keeps" in line and "data" in line
    answers_of(tmp_path, 7, secret="crane")
    line = refused(lambda: runs.resume(folder, "trainer.epochs=2"))
    assert "answers.jsonl has changed since the run began" in line


# -- lineage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "clean"), [("clean", True), ("kept", False), ("unknown", False)])
def test_a_model_that_may_know_held_out_secrets_does_not_start_a_clean_run(
    kind, clean, tmp_path, root, refused, capsys
):  # row 38
    secret = held_out()[0]
    secrets = {"clean": "crane", "kept": secret, "unknown": None}
    rows = [pair(1, secret="crane"), pair(2, secret=secrets[kind])]
    path = write_rows(tmp_path / "answers.jsonl", rows)
    extra = ["words.protocol=all"] if kind == "kept" else []
    _, folder = run(root, *SMALL, *SFT, f"data={path}", "trainer.steps=1", *extra)
    output = capsys.readouterr().out
    assert ("No test secret was ever the secret of a training game." in output) is clean
    assert ("could have validation or test secrets" in output) is not clean
    [stage] = stages_of(folder / "model")
    unknown = ", and 1 rows without a secret" if kind == "unknown" else ""
    assert describe_secrets(stage).endswith(f" secrets{unknown}")
    setup = build_experiment(resolve(composed("words.test=6", "words.val=6")))
    assert is_clean(stage, setup.words, setup.splits) is clean
    start = f"init_from={folder} init_checkpoint=last words.test=6 words.val=6 trainer.steps=1"
    start += " words.protocol=split"
    begin = training(f"{start} rollout.groups=1 output_dir={root} logger=none trainer.report=false")
    if not clean:
        assert "may have trained on secrets that are now held out" in refused(begin)
