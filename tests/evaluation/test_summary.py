"""Summaries, intervals and tables of finished games."""

import math

import numpy as np
import pytest

from tests.helpers.played_games import played, summary_of
from wordle_rl.evaluation.intervals import sign_test, standard_error, wilson, win_interval


@pytest.mark.parametrize(
    ("wins", "games", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_is_the_one_in_newcombes_table(wins, games, low, high):
    assert wilson(wins, games) == pytest.approx((low, high), abs=5e-5)


def test_wins_and_losses_are_counted_and_averaged():
    games = [
        played("crane", ["crane"]),
        played("sleep", ["crane", "steel", "sleep"]),
        played("crept", ["mound"] * 6),
    ]
    s = summary_of(games, seconds=2.0)
    assert (s["games"], s["secrets"], s["wins"], s["win_rate"]) == (3, 3, 2, 2 / 3)
    assert s["mean_guesses"] == 2.0
    assert s["mean_guesses_with_losses"] == pytest.approx(11 / 3)
    # by hand: deviations -8/3, -2/3, 10/3, so the variance is 168/9/2 and its root over sqrt(3)
    half = 1.959964 * math.sqrt(168 / 18) / math.sqrt(3)
    assert s["mean_guesses_with_losses_high"] == pytest.approx(11 / 3 + half, abs=1e-5)
    assert s["mean_guesses_with_losses_low"] == pytest.approx(11 / 3 - half, abs=1e-5)
    assert s["histogram"] == {"1": 1, "2": 0, "3": 1, "4": 0, "5": 0, "6": 0, "lost": 1}
    assert s["games_per_second"] == 1.5
    assert s["repeats"] == 5 / 10


def test_unfinished_and_forfeited_games_count_as_lost():
    forfeit = played("crane", ["slate"])
    forfeit.forfeit()
    s = summary_of([forfeit, played("crane", ["slate"]), played("crane", ["crane"])])
    assert (s["wins"], s["histogram"]["lost"], s["unfinished"]) == (1, 2, 1)
    assert s["mean_guesses_with_losses"] == 5.0


def test_several_games_on_a_secret_that_end_alike_are_as_good_as_one():
    won = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    secrets = list("abcdef")
    for samples in (2, 7):
        wins = [value for value in won for _ in range(samples)]
        labels = [secret for secret in secrets for _ in range(samples)]
        assert win_interval(wins, labels) == pytest.approx(wilson(4, 6))
        assert standard_error(wins, labels) == pytest.approx(np.std(won, ddof=1) / 6**0.5)
    assert win_interval(won, secrets) == pytest.approx(wilson(4, 6))
    assert standard_error([1.0, 0.0], ["a", "a"]) is None


def test_the_interval_of_wins_holds_the_truth_95_times_of_100_also_with_four_games_a_secret():
    rng = np.random.default_rng(3)
    secrets = [str(secret) for secret in range(60) for _ in range(4)]
    hits = by_game = 0
    for _ in range(400):
        chances = rng.beta(0.6, 0.4, size=60)  # some secrets are easy, some hard; 0.6 in the mean
        won = (rng.random((60, 4)) < chances[:, None]).astype(float).ravel().tolist()
        low, high = win_interval(won, secrets)
        hits += low <= 0.6 <= high
        low, high = wilson(int(sum(won)), 240)
        by_game += low <= 0.6 <= high
    assert 0.93 <= hits / 400 <= 0.98
    assert by_game / 400 < 0.85  # what the interval would be worth if games were independent


def test_the_sign_test_is_the_exact_mcnemar_test():
    assert sign_test(2, 8) == sign_test(8, 2) == pytest.approx(112 / 1024)  # 2 (1 + 10 + 45) / 2^10
    assert sign_test(0, 0) == sign_test(3, 3) == 1.0
