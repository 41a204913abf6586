"""What is printed of players: results and skill, and the paired gain."""

import math

from tests.helpers.played_games import played as game_of
from tests.helpers.played_games import summary_of
from wordle_rl.evaluation.results import count_results
from wordle_rl.evaluation.tables import describe_change, report_table

WORDS = ("crane", "slate", "mound", "sleep", "crept", "steel", "abbey")


def test_the_report_keeps_the_width_and_a_row_has_a_players_numbers(width=80):
    games = [game_of("crane", ["crane"])] * 4 + [game_of("sleep", ["crane", "sleep"])]
    long = {**summary_of(games), "player": "a model with a very long name indeed [bold]"}
    others = [summary_of(games[4:]), {**summary_of(games), "split": "validation"}]
    text = report_table([long, *others], width)
    assert max(map(len, text.splitlines())) <= width
    assert [line.count("█") for line in text.splitlines()[-7:]] == [60, 15, 0, 0, 0, 0, 0]
    # Both of 2 secrets are won: low = 2 / (2 + 1.96²).
    assert text.count("100.0 (34.2-100.0)") == 2
    solver = {"player": "entropy", "games": 2, **count_results([3, 4], ["crane", "slate"], 6)}
    [row] = [r for r in report_table([long], width, [solver]).splitlines() if r[:8] == "entropy "]
    assert "100.0 (34.2-100.0)" in row and "3.50" in row and row.split()[-3:] == ["-"] * 3
    assert "[bold]" in text, "a name has no markup"


def test_the_gain_takes_the_two_games_of_a_secret_as_a_pair():
    text = describe_change(WORDS[:5], [(0, 1), (0, 1), (1, 0), (1, 1), (0, 0)])
    # Differences 1, 1, -1, 0, 0: mean 0.2, variance (0.64 * 2 + 1.44 + 0.04 * 2) / 4 = 0.7.
    half = 100 * 1.959964 * math.sqrt(0.7 / 5)
    assert text.splitlines() == [
        f"Gain in wins: +20.0 points (95 %: {20 - half:+.1f} to {20 + half:+.1f}).",
        "Of the same 5 secrets, 2 were won only after training and 1 only before.",
    ]
    assert describe_change(WORDS[:1], [(1, 0)]).startswith("Gain in wins: -100.0 points.")
