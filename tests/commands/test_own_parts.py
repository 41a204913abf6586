"""Parts of one's own: what the user names is used, and a stored config brings nothing else."""

import os
import sys
from typing import Any

import pytest

from tests.helpers.outcomes import outcomes_by_turn
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.train import describe_choices
from wordle_rl.game.rules import Game, State
from wordle_rl.runs.config import compose_config
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT


@pytest.fixture(autouse=True)
def door(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the example is the config folder of this test's commands."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "path", [*sys.path])
    os.environ["WORDLE_RL_CONFIG_DIR"] = str(ROOT / "examples" / "own_parts")


def compose(*overrides: str) -> dict:
    return resolve(compose_config("config", ["experiment=none", "model=micro", *overrides]))


def test_a_reward_and_a_player_outside_the_package_are_used_by_those_who_name_them() -> None:
    config = compose("reward=vowel", "history=upto4", "history.player=parts.Varied")
    recipe: Any = build_experiment(config).recipe
    game = Game("crane", recipe.words.allowed_set)
    rewards = recipe.rewards.reward_turns([game.play("audio"), game.play("crane")])
    assert [turn["vowel"] for turn in rewards.turns] == [0.1, 0.0]
    guesses = {recipe.history.player.choose(State(), number / 50) for number in range(50)}
    assert len(guesses) > 40 and all(len(set(guess)) == 5 for guess in guesses)
    os.environ["WORDLE_RL_NAMED"] = ""  # as where the same config is a run's, in its folder
    for key in ("history.player", "reward.components.vowel._target_"):
        with pytest.raises(ConfigError, match=f"{key} must be"):
            build_experiment(config)
        config["history"]["player"] = "entropy"


def test_the_line_of_choices_names_what_a_model_outside_the_package_brings(tmp_path) -> None:
    os.environ["WORDLE_RL_CONFIG_DIR"] = str(tmp_path)
    (tmp_path / "model").mkdir()
    text = "defaults: [pretrained, /x@_here_, _self_]\npath: some/where\nlora: {rank: 3}\n"
    (tmp_path / "model" / "own.yaml").write_text(text)
    line = describe_choices({"choices": {"model": "own"}, "typed": []})
    assert "model=own brings prompt=state" in line and "model.lora.rank=3 " in line


def test_an_algorithm_outside_the_package_may_compare_guesses_on_the_same_board() -> None:
    setup = build_experiment(compose("algorithm=dr_grpo", "algorithm._target_=parts.ByState"))
    boards = [[State(), State(turn=turn)] for turn in (1, 1, 2)]
    outcomes = outcomes_by_turn([[4, 2], [0, 6], [8, 1]], [0, 0, 0], states=boards)
    advantages = setup.recipe.algorithm.advantages(outcomes).per_turn
    assert [turns.tolist() for turns in advantages] == [[0, -2], [-4, 2], [4, 0]]


FAULTS = {
    "+reward.components.x={_target_: parts.vowel, range: [1, 0]}": "least and greatest value",
    "+reward.components.x={_target_: parts.vowel, least: 2}": "'least'; its settings are weight",
    "+reward.components.x._target_=os.system": "must be a dataclass of kind Reward",
    "history.player=parts.vowel": "is no Player",
}


@pytest.mark.parametrize("given", FAULTS)
def test_a_part_of_ones_own_that_cannot_be_one_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=FAULTS[given]):
        build_experiment(compose(given))
