"""Two players on the same secrets: the difference, its interval, and which secrets count."""

from __future__ import annotations

import math
import statistics

import pytest

from wordle_rl.reports.boards import Board, Row
from wordle_rl.reports.pairs import difference, pair_boards
from wordle_rl.reports.results import Estimate, Result


def player(*games: tuple[str, bool, int]) -> Result:
    boards = tuple(
        Board(step=0, secret=secret, won=won, rows=(Row("crane", "xxxxx", ""),) * turns)
        for secret, won, turns in games
    )
    nothing = Estimate(value=0.0)
    return Result(label="x", games=len(boards), wins=nothing, guesses=nothing, boards=boards)


def test_the_interval_is_over_the_differences_of_the_secrets():
    words = [f"{i:05}" for i in range(8)]
    first = player(*((word, i % 2 == 0, 6) for i, word in enumerate(words)))
    second = player(*((word, i != 2, 4) for i, word in enumerate(words)))
    found = difference(first, second)
    gains = [-1 if i == 2 else int(i % 2) for i in range(8)]
    half = 1.959964 * statistics.stdev(gains) / math.sqrt(8)
    mean = statistics.mean(gains)
    assert found is not None
    assert (found.wins.value, found.wins.low, found.wins.high) == pytest.approx(
        (mean, mean - half, mean + half)
    )
    # Lost games count as 7: the first needs 6 or 7, the second 4 or 7.
    assert found.guesses.value == pytest.approx((3 * (4 - 6) + 4 * (4 - 7) + (7 - 6)) / 8)
    assert (found.secrets, found.only_first, found.only_second) == (8, 1, 4)
    assert found.p_value == pytest.approx(2 * (1 + 5) / 2**5)


def test_only_secrets_of_both_players_count():
    first = player(("crane", True, 3), ("slate", False, 6))
    second = player(("slate", True, 3), ("abbey", True, 3))
    found = difference(first, second)
    assert found is not None and found.secrets == 1 and found.wins == Estimate(value=1.0)
    assert [(a.secret, b.secret) for a, b in pair_boards(first, second)] == [("slate", "slate")]
    assert difference(first, player(("mound", True, 3))) is None


def test_several_games_on_one_secret_are_one_difference():
    first = player(*[("crane", False, 6)] * 4, *[("slate", True, 3)] * 4)
    second = player(*[("crane", True, 3)] * 2, *[("crane", False, 6)] * 2, ("slate", True, 3))
    found = difference(first, second)
    assert found is not None
    assert found.secrets == 2 and found.wins.value == pytest.approx(0.25)
    assert len(pair_boards(first, second)) == 2
