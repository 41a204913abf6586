"""Credit by turn: who is compared with whom, worked out by hand."""

import numpy as np
import pytest

from wordle_rl.algorithms.credit import Scale, group_advantages, turn_advantages
from wordle_rl.algorithms.rloo import leave_one_out
from wordle_rl.game.rules import Game
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rewards.win import Win
from wordle_rl.words.lists import WordLists

WORDS = WordLists(answers=("crane", "moist", "slate"), allowed=("crane", "moist", "slate"))


def advantages(*to_go: list[float], n: int = 2, scale: str = "none") -> list[list[float]]:
    groups = [i // n for i in range(len(to_go))]
    return [list(a) for a in turn_advantages(to_go, groups, scale=scale)]


def test_a_turn_is_compared_with_the_others_of_its_group_at_that_turn() -> None:
    assert advantages([3.0, 1.0], [1.0, 5.0]) == [[2.0, -4.0], [-2.0, 4.0]]


def test_the_baseline_leaves_the_rollout_itself_out() -> None:
    assert advantages([6.0], [0.0], [3.0], n=3) == [[4.5], [-4.5], [0.0]]


def test_a_rollout_alone_at_a_turn_is_compared_with_the_other_groups() -> None:
    # Group 0 has one rollout at turn 1; group 1 has two, with a mean of 4 there.
    given = ([1.0, 9.0], [1.0], [2.0, 3.0], [2.0, 5.0])
    assert advantages(*given) == [[0.0, 5.0], [0.0], [0.0, -2.0], [0.0, 2.0]]


def test_the_only_rollout_at_a_turn_gets_no_advantage_there() -> None:
    assert advantages([1.0, 7.0], [1.0])[0][1] == 0.0


def test_equal_rewards_give_exact_zeros() -> None:  # row 10
    third = 1.0 / 3.0
    assert advantages([third, 0.1], [third, 0.1], [third, 0.1], n=3) == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("scale", ["none", "std"])
def test_equal_rewards_of_rollouts_alone_give_exact_zeros(scale: str) -> None:
    assert (0.1 + 0.1 + 0.1 - 0.1) / 2 != 0.1  # the others' mean, as sums round it
    assert advantages([0.1], [0.1], [0.1], n=1, scale=scale) == [[0.0]] * 3


@pytest.mark.parametrize("scale", ["none", "std"])
def test_rewards_that_differ_by_rounding_give_exact_zeros(scale: Scale) -> None:
    rewards = np.array([[0.3, 0.1 + 0.2, 0.3], [7e5, 7e5 + 1e-9, 7e5]])
    assert (rewards[:, 0] != rewards[:, 1]).all()
    assert not group_advantages(rewards, scale).any()
    assert not leave_one_out(rewards).any()
    assert not np.array(advantages(*rewards.reshape(6, 1).tolist(), n=3, scale=scale)).any()


@pytest.mark.parametrize("base", [0.0, 0.3, 0.9])
def test_the_least_difference_that_rewards_keep_counts_in_full(base: float) -> None:
    """Rewards are rounded to nine digits."""
    rewards = np.round([[base, base + 1e-9]], 9)
    assert group_advantages(rewards, "std")[0] == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert leave_one_out(rewards)[0] == pytest.approx([-1e-9, 1e-9], rel=1e-5)
    scaled = advantages(*rewards.reshape(2, 1).tolist(), scale="std")
    assert scaled == [pytest.approx([-1.0]), pytest.approx([1.0])]


def test_scale_std_gives_the_step_unit_deviation() -> None:
    scaled = np.concatenate(advantages([3.0, 1.0], [1.0, 5.0], scale="std"))
    assert scaled.std() == pytest.approx(1.0)


def game(*guesses: str) -> Game:
    played = Game("crane", WORDS.allowed_set)
    for guess in guesses:
        played.play(guess if guess != "?" else None, reason=None if guess != "?" else "empty")
    return played


SET = RewardSet(
    components={"format": Format(words=WORDS), "win": Win(speed=0.5)},
    weights={"format": 1.0, "win": 2.0},
)


def to_go(*guesses: str) -> list[float]:
    played = game(*guesses)
    return SET.to_go(played, SET.score(played))


def test_reward_to_go_adds_up_what_came_from_each_turn_on() -> None:
    # Won at turn 2 of 6: win 2 x (1 + 0.5 x 4/5), format 1 a turn, 4 unused turns at 1 each.
    assert to_go("slate", "crane") == pytest.approx([1 + 1 + 2.8 + 4, 1 + 2.8 + 4])


def test_from_the_same_state_winning_now_beats_winning_later_and_losing() -> None:
    now = to_go("slate", "crane")[1]
    later = to_go("slate", "moist", "crane")[1]
    lost = to_go("slate", "moist", "?", "?", "?", "?")[1]
    assert now > later > lost


def test_a_bad_turn_does_not_change_what_later_turns_are_credited_with() -> None:
    assert to_go("?", "crane")[1] == pytest.approx(to_go("slate", "crane")[1])


def test_a_discount_of_zero_looks_at_each_turn_alone() -> None:
    played = game("slate", "crane")
    reward = SET.score(played)
    assert SET.to_go(played, reward, 0.0) == pytest.approx([1.0, 1 + 2.8])


def test_a_discount_counts_later_turns_and_unused_ones_less() -> None:
    played = game("slate", "crane")
    later = 1 + 2.8 + 0.5 + 0.25 + 0.125 + 0.0625
    assert SET.to_go(played, SET.score(played), 0.5) == pytest.approx([1 + later / 2, later])
