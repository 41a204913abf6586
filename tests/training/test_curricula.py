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


def games(shares: dict[str, float], *, readable: float = 1.0, count: int = 4) -> list[list[Game]]:
    """A group per secret, of which so much was won; so many first guesses could be read."""
    groups = []
    for secret, share in shares.items():
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
    sizes = []
    monkeypatch.setattr(Curriculum, "observe", lambda self, groups: sizes.append(len(groups)))
    overrides = [*settings(tmp_path, "dapo"), "trainer.steps=2", "trainer.report=false"]
    overrides += ["rules.max_turns=1", "reward.components.brevity.free=6"]  # often equal
    _, folder = run(root, *overrides)
    assert sum(step["groups/resampled"] for step in metrics_of(folder)[1:]) > 0
    assert sizes == [4, 4]


LOSSES = dict.fromkeys(["crane", "slate", "moist", "lucky", "bamel"], 0.0)


def test_phases_switch_after_the_epochs_that_were_asked_for(words):
    course, recipe = curriculum(words, "curriculum=phases", "curriculum.epochs=1.5")
    plans = []
    for _ in range(5):
        plans.append((course.plan().stage, course.plan().rewards.weights["format"]))
        course.observe(games(LOSSES))
    # five groups of ten secrets are half an epoch
    assert plans == [("first", 1.0)] * 3 + [("reward", 0.3)] * 2
    assert course.plan().rewards is recipe.rewards


def test_linear_weights_move_evenly_and_so_does_the_reward_of_any_game(words):
    course, recipe = curriculum(words, "curriculum=linear", "curriculum.epochs=2")
    start = course.plan().rewards
    sample = [game for group in games({"crane": 0.5, "slate": 0.0}, readable=0.5) for game in group]
    plans = []
    for number in range(6):
        plan = course.plan()
        plans.append((plan.stage, round(plan.rewards.weights["feedback"], 9)))
        share = min(number / 4, 1.0)
        for game in sample:
            start_total, end_total = start.reward(game).total, recipe.rewards.reward(game).total
            expected = (1 - share) * start_total + share * end_total
            assert plan.rewards.reward(game).total == pytest.approx(expected, abs=1e-8)
        course.observe(games(LOSSES))
    assert plans == [
        ("first", 0.5),
        ("between", 0.625),
        ("between", 0.75),
        ("between", 0.875),
        ("reward", 1.0),
        ("reward", 1.0),
    ]


def test_the_gate_opens_once_the_format_was_good_over_its_window_and_stays_open(words):
    course, _ = curriculum(words, "curriculum=gated", "curriculum.window=2")
    stages = []
    for readable in (1.0, 0.0, 1.0, 1.0, 0.0, 0.0):
        stages.append(course.plan().stage)
        course.observe(games(LOSSES, readable=readable))
    # the window is full after two steps, all of it readable after four
    assert stages == ["first"] * 4 + ["reward"] * 2
    assert course.metrics() == {"open": 1.0, "format": 0.0}


def test_lost_secrets_are_played_again_the_oldest_loss_first(words):
    course, _ = curriculum(words, "curriculum=replay", "curriculum.share=0.4")
    assert course.plan().replayed == ()
    course.observe(games({"crane": 0.25, "slate": 0.75, "moist": 0.5, "lucky": 0.0}))
    assert course.plan().replayed == ("crane", "moist")  # two of five groups; slate was won
    course.observe(games({"bamel": 0.0, "crane": 0.0, "moist": 1.0}))
    # lucky still waits; crane was lost again
    assert course.state_dict() == {"_waiting": ["lucky", "bamel", "crane"]}
    assert course.plan().replayed == ("lucky", "bamel")
    # crane, which still waited, was among the planned secrets and lost: it waits once
    course.observe(games({"lucky": 1.0, "bamel": 1.0, "crane": 0.0}))
    assert course.state_dict() == {"_waiting": ["crane"]}


def test_secrets_of_middling_success_are_played_again_and_no_others(words):
    overrides = ["curriculum.share=1.0", "curriculum.lost=0.25", "curriculum.most_lost=0.75"]
    course, _ = curriculum(words, "curriculum=replay", *overrides)
    course.observe(games(dict(zip([*WORDS, "bamel"], (0.0, 0.25, 0.5, 0.75, 1.0), strict=True))))
    assert course.plan().replayed == ("slate", "moist", "lucky")
    course.observe(games({"slate": 0.0, "moist": 1.0, "lucky": 0.5}))
    assert course.plan().replayed == ("lucky",)


MOVERS: dict[str, list[str]] = {  # curricula that change within a few steps, and settings for it
    "phases": [],
    "linear": [],
    "gated": ["curriculum.window=3"],
    "replay": ["curriculum.share=0.4"],
}


@pytest.mark.parametrize("name", OPTIONS["curriculum"])
def test_a_restored_curriculum_plans_what_the_one_that_never_stopped_plans(name, words):  # row 22
    template: Curriculum = curriculum(words, f"curriculum={name}", *MOVERS.get(name, []))[0]

    def new_course() -> Curriculum:
        return copy.deepcopy(template)

    def describe(course: Curriculum) -> Any:
        plan = course.plan()
        return plan.stage, plan.rewards.weights, plan.replayed, course.metrics()

    rng, reference, trial = random.Random(1), new_course(), new_course()
    plans = []
    for _ in range(8):
        clone = new_course()
        clone.load_state_dict(json.loads(json.dumps(trial.state_dict())))
        trial = clone
        plans.append(describe(reference))
        assert describe(trial) == plans[-1]
        groups = games({word: rng.random() for word in LOSSES}, readable=rng.random() + 0.3)
        for item in (reference, trial):
            item.observe(groups)
    assert name not in MOVERS or len({repr(plan) for plan in plans}) > 1, "it must change"


# -- whole runs -----------------------------------------------------------------------------------

RUNS = {
    "gated": ["curriculum.window=2", "curriculum.threshold=0.5"],
    "replay": ["curriculum.share=0.5"],
}
MOVES = {"gated": "open", "replay": "replayed"}


def decode_guess(self: HFTokenizer, ids: list[int]) -> str:
    """Reads a guess into most answers of an untrained model."""
    guess = f"{'bcdf'[sum(ids) % 4]}{'aei'[len(ids) % 3]}nor"
    return f"<guess>{guess}</guess>" if sum(ids) % 5 else ""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in RUNS])
def test_stopped_inside_a_stage_a_run_equals_one_that_never_stopped(  # row 22
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(HFTokenizer, "decode", decode_guess)
    first_stage = [
        "reward@curriculum.first=phase2_brief",
        "curriculum.first.lawful=false",
        "curriculum.first.components.brevity.per=4",
    ]
    overrides = [
        *settings(tmp_path, "sft"),
        "algorithm=grpo",
        f"curriculum={name}",
        *RUNS[name],
        *(first_stage if name != "replay" else []),
    ]
    (root := tmp_path / "runs").mkdir()
    _, reference = run(root, *overrides)
    moves = [m[f"curriculum/{MOVES[name]}"] for m in metrics_of(reference)[1:]]
    assert len(set(moves)) > 1, "the curriculum must move within the run"
    stop(scene, "play", 4, signal.SIGINT, partial(run, root, *overrides))
    [folder] = set(root.iterdir()) - {reference}
    torch.manual_seed(99)
    resume(folder)
    assert_equal_runs(folder, reference)
    state = json.loads((folder / "checkpoints" / "step_000006" / "state.json").read_text())
    assert state["curriculum"]
