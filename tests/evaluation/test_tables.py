"""What is printed of players: results and skill, and the paired gain."""

import math

import pytest

from tests.helpers.played_games import played as game_of
from tests.helpers.played_games import summary_of
from wordle_rl.evaluation.results import count_results
from wordle_rl.evaluation.tables import describe_change, measure_change, report_table

WORDS = ("crane", "slate", "mound", "sleep", "crept", "steel", "abbey")


def test_the_report_keeps_the_width_and_a_row_has_a_players_numbers(width=80):
    games = [game_of("crane", ["crane"])] * 4 + [game_of("sleep", ["crane", "sleep"])]
    entry = {**summary_of(games), "player": "a model with a very long name indeed [bold]"}
    summaries = [summary_of(games[4:]), {**summary_of(games), "split": "validation"}]
    text = report_table([entry, *summaries], width)
    assert max(map(len, text.splitlines())) <= width
    assert [line.count("█") for line in text.splitlines()[-7:]] == [60, 15, 0, 0, 0, 0, 0]
    # Both of 2 secrets are won: low = 2 / (2 + 1.96²).
    assert text.count("100.0 (34.2-100.0)") == 2
    solver = {"player": "entropy", "games": 2, **count_results([3, 4], ["crane", "slate"], 6)}
    [row] = [r for r in report_table([entry], width, [solver]).splitlines() if r[:8] == "entropy "]
    assert "100.0 (34.2-100.0)" in row and "3.50" in row and row.split()[-3:] == ["-"] * 3
    assert "[bold]" in text, "a name has no markup"


def test_the_gain_takes_the_two_games_of_a_secret_as_a_pair():
    change = measure_change(WORDS[:5], [(0, 1), (0, 1), (1, 0), (1, 1), (0, 0)])
    # Differences 1, 1, -1, 0, 0: mean 0.2, variance (0.64 * 2 + 1.44 + 0.04 * 2) / 4 = 0.7.
    half = 1.959964 * math.sqrt(0.7 / 5)
    assert [change[f"gain{end}"] for end in ("", "_low", "_high")] == pytest.approx(
        [0.2, 0.2 - half, 0.2 + half]
    )
    assert (change["only_after"], change["only_before"]) == (2, 1)
    assert measure_change(WORDS[:1], [(1, 0)])["gain_low"] is None


def test_the_end_of_a_run_says_how_words_were_chosen_and_what_the_opener_alone_brings():
    change = {"gain": 0.4, "gain_low": 0.1, "gain_high": 0.7, "only_after": 5, "only_before": 1}
    change |= {"old_opener": "qaid", "win_rate_old_opener": 0.5}
    summary = {"win_rate": 0.8, "games": 10, "split": "test", "drawn": "greedy"}
    lines = describe_change({**summary, "start": {"win_rate": 0.4}, "change": change})
    for number in ("+40.0", "+10.0 to +70.0", "40.0 -> 80.0 %", "greedy"):
        assert number in lines[0]
    assert "QAID" in lines[2] and "50.0 %" in lines[2] and "+30.0" in lines[2]
