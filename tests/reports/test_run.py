"""Two players on the same secrets: the difference, its interval, and which secrets count."""

import math
import statistics

import pytest

from tests.helpers.run_folders import make_run
from wordle_rl.reports.run import Board, Result, difference, read_run


def player(*games: tuple[str, bool, int]) -> Result:
    boards = [
        Board(secret, won, [("crane", "22222", "", "")] * turns) for secret, won, turns in games
    ]
    return Result(label="x", measures={}, boards=boards)


def test_the_interval_is_over_the_differences_of_the_secrets():
    words = [f"{i:05}" for i in range(8)]
    first = player(*((word, i % 2 == 0, 6) for i, word in enumerate(words)))
    second = player(*((word, i != 2, 4) for i, word in enumerate(words)))
    change = difference(first, second)
    gains = [-1 if i == 2 else int(i % 2) for i in range(8)]
    half = 1.959964 * statistics.stdev(gains) / math.sqrt(8)
    mean = statistics.mean(gains)
    assert change is not None
    assert change.wins == pytest.approx((mean, mean - half, mean + half))
    # Lost games count as 7: the first needs 6 or 7, the second 4 or 7.
    assert change.guesses.value == pytest.approx((3 * (4 - 6) + 4 * (4 - 7) + (7 - 6)) / 8)
    assert (change.secrets, change.only_first, change.only_second) == (8, 1, 4)
    assert change.p_value == pytest.approx(2 * (1 + 5) / 2**5)


def test_a_logged_mean_keeps_its_value_and_takes_the_interval_of_the_boards(tmp_path):
    validations = read_run(make_run(tmp_path)).validations
    assert validations.win_rate.tolist() == pytest.approx([1 / 3, 1 / 3, 1, 1, 1])
    assert validations.mean_guesses_with_losses.tolist() == [5.0, 4.75, 4.5, 4.25, 4.0]
    half = 1.959964 * statistics.stdev([2, 7, 7]) / math.sqrt(3)
    low, high = (validations[f"mean_guesses_with_losses_{end}"][0] for end in ("low", "high"))
    assert (low, high) == pytest.approx((5 - half, 5 + half))
