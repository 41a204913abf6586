"""What training changed: the table of numbers, the paired gain, and which games are shown."""

import math

import pytest

from wordle_rl.evaluation.before_after import (
    choose_pairs,
    comparison_table,
    describe_change,
    show_pairs,
)
from wordle_rl.game.rules import Game

WORDS = ("crane", "slate", "mound", "sleep", "crept", "steel", "abbey")


def played(secret, won):
    game = Game(secret, set(WORDS))
    for guess in [secret] if won else [None] * 6:
        game.play(guess)
    return game


def pairs_of(*results):
    """A pair of games for each (won before, won after)."""
    return [
        (played(secret, before), played(secret, after))
        for secret, (before, after) in zip(WORDS, results, strict=False)
    ]


def summary(wins, low, high, mean, upper, *shares, turns=6):
    keys = ("win_rate", "win_rate_low", "win_rate_high", "mean_guesses_with_losses",
            "mean_guesses_with_losses_high", "non_words", "consistency", "bits_ratio")  # fmt: skip
    values = dict(zip(keys, (wins, low, high, mean, upper, *shares), strict=True))
    return {**values, "rules": {"max_turns": turns}}


def test_the_table_has_wins_guesses_and_use_of_clues_before_and_after():
    before = summary(0.125, 0.092, 0.166, 6.62, 6.71, 0.25, 0.312, 0.64)
    after = summary(0.3, 0.25, 0.353, 6.1, 6.21, 0.05, 0.405, 0.715)
    lines = comparison_table(before, after, ("before", "after step 60")).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["before", "after", "step", "60", "change"]
    rows = {line[:30].strip(): line[30:].split() for line in lines[2:7]}
    assert rows == {
        "wins, % (95 %)": ["12.5", "(9.2-16.6)", "30.0", "(25.0-35.3)", "+17.5"],
        "mean guesses, a loss as 7": ["6.62", "±0.09", "6.10", "±0.11", "-0.52"],
        "non-words, %": ["25.0", "5.0", "-20.0"],
        "guesses that fit all clues, %": ["31.2", "40.5", "+9.3"],
        "bits gained, % of the most": ["64.0", "71.5", "+7.5"],
    }


def test_what_could_not_be_measured_has_no_change():
    before = summary(0.0, 0.0, 0.4, 9.0, None, None, None, None, turns=8)
    after = summary(0.5, 0.1, 0.9, 7.0, 8.5, 0.0, 0.5, 0.5, turns=8)
    text = comparison_table(before, after, ("before", "after"))
    rows = [line.split()[-3:] for line in text.splitlines()[2:7]]
    assert rows[2:] == [["-", "0.0", "-"], ["-", "50.0", "-"], ["-", "50.0", "-"]]
    assert "a loss as 9" in text and "9.00" in text and "7.00 ±1.50" in text


def test_the_gain_takes_the_two_games_of_a_secret_as_a_pair():
    text = describe_change(pairs_of((0, 1), (0, 1), (1, 0), (1, 1), (0, 0)))
    # Differences 1, 1, -1, 0, 0: mean 0.2, variance (0.64 * 2 + 1.44 + 0.04 * 2) / 4 = 0.7.
    half = 100 * 1.959964 * math.sqrt(0.7 / 5)
    assert text.splitlines() == [
        "Of the same 5 secrets, 2 were won only after training and 1 only before.",
        f"Gain in wins: +20.0 points (95 %: {20 - half:+.1f} to {20 + half:+.1f}).",
    ]
    assert describe_change(pairs_of((1, 0))).endswith("Gain in wins: -100.0 points.")


@pytest.mark.parametrize(
    ("count", "changed", "same"),
    [
        (1, ["slate"], []),
        (2, ["slate"], ["crane"]),
        (3, ["slate", "sleep"], ["crane"]),
        (5, ["slate", "sleep"], ["crane", "mound", "crept"]),
        (9, ["slate", "sleep"], ["crane", "mound", "crept"]),
    ],
)
def test_half_of_the_shown_secrets_changed_whether_for_better_or_worse(count, changed, same):
    pairs = pairs_of((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
    found = choose_pairs(pairs, count)
    assert [[pair[0].secret for pair in part] for part in found] == [changed, same]


def test_when_everything_changed_all_shown_secrets_did():
    changed, same = choose_pairs(pairs_of(*[(0, 1)] * 5), 4)
    assert [pair[0].secret for pair in changed] == list(WORDS[:4]) and same == []


def test_boards_follow_the_rule_that_chose_them():
    pairs = pairs_of((0, 0), (0, 1), (1, 1))
    lines = show_pairs(pairs, 2, ("before", "after step 5"), colour=False).splitlines()
    assert lines[0] == "Boards, by hash order alone: secrets whose result changed (1), others (1)."
    assert max(map(len, lines)) <= 80
    titles = [line.split() for line in lines if line.startswith(("CRANE", "SLATE", "MOUND"))]
    assert titles[0] == ["SLATE", "lost", "SLATE", "won", "in", "1"]
    assert ["CRANE", "lost", "CRANE", "lost"] in titles
    assert not any(row[0] == "MOUND" for row in titles)
