"""Curricula: what a step is judged by and plays, and that a stopped run follows them as before."""

import copy
import json
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.configs import OPTIONS, composed
from tests.helpers.runs import assert_equal_runs, metrics_of, resume, run, settings, stop
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts import kinds as scene
from wordle_rl.rollouts.settings import Recipe
from wordle_rl.training.curricula import Curriculum

pytestmark = pytest.mark.usefixtures("quiet")

WORDS = ["crane", "slate", "moist", "lucky"]


@pytest.fixture
def words(tmp_path: Path) -> str:
    """Overrides for ten training secrets and five groups a step."""
    file = tmp_path / "words.txt"
    file.write_text("\n".join([f"{a}a{b}el" for a in "bcdf" for b in "mnp"] + WORDS) + "\n")
    return f"words.answers={file} words.test=3 words.val=3 rollout.groups=5"


def curriculum(words: str, *overrides: str) -> tuple[Any, Recipe]:
    setup = build_experiment(resolve(composed(*words.split(), *overrides)))
    assert len(setup.recipe.secrets) == 10
    return setup.curriculum, setup.recipe


def games(won: dict[str, float], *, readable: float = 1.0, count: int = 4) -> list[list[Game]]:
    """A group per secret, of which so much was won; so many first guesses could be read."""
    groups = []
    for secret, share in won.items():
        group = []
        for i in range(count):
            game = Game(secret, {secret, "zzzzz"})
            game.play("zzzzz" if i < readable * count else None)
            if i < share * count:
                game.play(secret)
            while game.status is GameStatus.PLAYING:
                game.play("zzzzz" if readable else None)
            group.append(game)
        groups.append(group)
    return groups


def test_a_curriculum_sees_the_groups_that_are_trained_and_not_those_they_replaced(
    tmp_path, root, monkeypatch
):
    seen = []
    monkeypatch.setattr(Curriculum, "observe", lambda self, groups: seen.append(len(groups)))
    given = [*settings(tmp_path, "dapo"), "trainer.steps=2", "trainer.report=false"]
    given += ["rules.max_turns=1", "reward.components.brevity.free=6"]  # often equal
    _, folder = run(root, *given)
    assert sum(step["groups/resampled"] for step in metrics_of(folder)[1:]) > 0
    assert seen == [4, 4]


ANY = dict.fromkeys(["crane", "slate", "moist", "lucky", "bamel"], 0.0)


def test_phases_switch_after_the_epochs_that_were_asked_for(words):
    taught, recipe = curriculum(words, "curriculum=phases", "curriculum.epochs=1.5")
    seen = []
    for _ in range(5):
        seen.append((taught.plan().stage, taught.plan().rewards.weights["format"]))
        taught.observe(games(ANY))
    # five groups of ten secrets are half an epoch
    assert seen == [("first", 1.0)] * 3 + [("reward", 0.3)] * 2
    assert taught.plan().rewards is recipe.rewards


def test_linear_weights_move_evenly_and_so_does_the_reward_of_any_game(words):
    taught, recipe = curriculum(words, "curriculum=linear", "curriculum.epochs=2")
    start = taught.plan().rewards
    played = [game for group in games({"crane": 0.5, "slate": 0.0}, readable=0.5) for game in group]
    seen = []
    for number in range(6):
        plan = taught.plan()
        seen.append((plan.stage, round(plan.rewards.weights["feedback"], 9)))
        share = min(number / 4, 1.0)
        for game in played:
            one, other = start.reward(game).total, recipe.rewards.reward(game).total
            mixed = (1 - share) * one + share * other
            assert plan.rewards.reward(game).total == pytest.approx(mixed, abs=1e-8)
        taught.observe(games(ANY))
    assert seen == [
        ("first", 0.5),
        ("between", 0.625),
        ("between", 0.75),
        ("between", 0.875),
        ("reward", 1.0),
        ("reward", 1.0),
    ]


def test_the_gate_opens_once_the_format_was_good_over_its_window_and_stays_open(words):
    taught, _ = curriculum(words, "curriculum=gated", "curriculum.window=2")
    stages = []
    for readable in (1.0, 0.0, 1.0, 1.0, 0.0, 0.0):
        stages.append(taught.plan().stage)
        taught.observe(games(ANY, readable=readable))
    # the window is full after two steps, all of it readable after four
    assert stages == ["first"] * 4 + ["reward"] * 2
    assert taught.metrics() == {"open": 1.0, "format": 0.0}


def test_lost_secrets_are_played_again_the_oldest_loss_first(words):
    taught, _ = curriculum(words, "curriculum=replay", "curriculum.share=0.4")
    assert taught.plan().replayed == ()
    taught.observe(games({"crane": 0.25, "slate": 0.75, "moist": 0.5, "lucky": 0.0}))
    assert taught.plan().replayed == ("crane", "moist")  # two of five groups; slate was won
    taught.observe(games({"bamel": 0.0, "crane": 0.0, "moist": 1.0}))
    # lucky still waits; crane was lost again
    assert taught.state_dict() == {"_waiting": ["lucky", "bamel", "crane"]}
    assert taught.plan().replayed == ("lucky", "bamel")
    # crane, which still waited, was among the planned secrets and lost: it waits once
    taught.observe(games({"lucky": 1.0, "bamel": 1.0, "crane": 0.0}))
    assert taught.state_dict() == {"_waiting": ["crane"]}


def test_secrets_of_middling_success_are_played_again_and_no_others(words):
    middling = ["curriculum.share=1.0", "curriculum.lost=0.25", "curriculum.most_lost=0.75"]
    taught, _ = curriculum(words, "curriculum=replay", *middling)
    taught.observe(games(dict(zip([*WORDS, "bamel"], (0.0, 0.25, 0.5, 0.75, 1.0), strict=True))))
    assert taught.plan().replayed == ("slate", "moist", "lucky")
    taught.observe(games({"slate": 0.0, "moist": 1.0, "lucky": 0.5}))
    assert taught.plan().replayed == ("lucky",)


MOVING: dict[str, list[str]] = {  # those that change within a few steps, and what makes them do so
    "phases": [],
    "linear": [],
    "gated": ["curriculum.window=3"],
    "replay": ["curriculum.share=0.4"],
}


@pytest.mark.parametrize("name", OPTIONS["curriculum"])
def test_a_restored_curriculum_plans_what_the_one_that_never_stopped_plans(name, words):  # row 22
    first: Curriculum = curriculum(words, f"curriculum={name}", *MOVING.get(name, []))[0]

    def fresh() -> Curriculum:
        return copy.deepcopy(first)

    def telling(one: Curriculum) -> Any:
        plan = one.plan()
        return plan.stage, plan.rewards.weights, plan.replayed, one.metrics()

    chance, unbroken, stopped = random.Random(1), fresh(), fresh()
    plans = []
    for _ in range(8):
        restored = fresh()
        restored.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
        stopped = restored
        plans.append(telling(unbroken))
        assert telling(stopped) == plans[-1]
        seen = games({word: chance.random() for word in ANY}, readable=chance.random() + 0.3)
        for one in (unbroken, stopped):
            one.observe(seen)
    assert name not in MOVING or len({repr(plan) for plan in plans}) > 1, "it must change"


# -- whole runs -----------------------------------------------------------------------------------

RUNS = {
    "gated": ["curriculum.window=2", "curriculum.threshold=0.5"],
    "replay": ["curriculum.share=0.5"],
}
MOVES = {"gated": "open", "replay": "replayed"}


def some_guess(self: HFTokenizer, ids: list[int]) -> str:
    """Reads a guess into most answers of an untrained model."""
    guess = f"{'bcdf'[sum(ids) % 4]}{'aei'[len(ids) % 3]}nor"
    return f"<guess>{guess}</guess>" if sum(ids) % 5 else ""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in RUNS])
def test_stopped_inside_a_stage_a_run_equals_one_that_never_stopped(  # row 22
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(HFTokenizer, "decode", some_guess)
    first = [
        "reward@curriculum.first=phase2_brief",
        "curriculum.first.lawful=false",
        "curriculum.first.components.brevity.per=4",
    ]
    given = [
        *settings(tmp_path, "sft"),
        "algorithm=grpo",
        f"curriculum={name}",
        *RUNS[name],
        *(first if name != "replay" else []),
    ]
    (root := tmp_path / "runs").mkdir()
    _, unbroken = run(root, *given)
    moves = [m[f"curriculum/{MOVES[name]}"] for m in metrics_of(unbroken)[1:]]
    assert len(set(moves)) > 1, "the curriculum must move within the run"
    stop(scene, "play", 4, signal.SIGINT, partial(run, root, *given))
    [folder] = set(root.iterdir()) - {unbroken}
    torch.manual_seed(99)
    resume(folder)
    assert_equal_runs(folder, unbroken)
    state = json.loads((folder / "checkpoints" / "step_000006" / "state.json").read_text())
    assert state["curriculum"]
