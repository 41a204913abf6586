"""Families of similar words and how games are lost, against counts by hand."""

from __future__ import annotations

from functools import partial

import pytest

from tests.helpers.played_games import played_with
from wordle_rl.evaluation.losses import (
    Families,
    expected_in_common,
    finishing,
    loss_rates,
    lost_by_all,
    lost_games,
    win_shares,
)
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.words.lists import WordLists

LIST = ("batch", "caste", "catch", "crane", "match", "paste", "patch", "waste", "watch")
WORDS = WordLists(answers=LIST, allowed=LIST)
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))

played = partial(played_with, WORDS.allowed_set)


LOST = played("watch", "crane", "batch", "catch", "match", "patch", "batch")
WON = played("watch", "crane", "watch")


def test_the_largest_family_of_watch_is_every_word_in_atch():
    pattern, members = Families(LIST).largest("watch")
    assert (pattern, members) == ("_atch", ("batch", "catch", "match", "patch", "watch"))


def test_a_word_like_no_other_is_a_family_of_its_own():
    assert Families(LIST).largest("crane") == ("_rane", ("crane",))


def test_a_word_outside_the_list_has_the_family_that_it_would_join():
    pattern, members = Families(LIST).largest("haste")
    assert pattern == "_aste" and members == ("caste", "paste", "waste")


def test_among_equal_families_the_earliest_difference_decides():
    assert Families(("bat", "cat", "bag")).largest("bat")[0] == "_at"


def test_loss_rates_are_by_trait_of_the_secret():
    games = [LOST, WON, played("crane", "crane"), played("paste", "crane", "paste")]
    rates = loss_rates(games, lambda secret: "atch" if secret.endswith("atch") else "other")
    assert (rates["atch"]["secrets"], rates["atch"]["games"], rates["atch"]["lost"]) == (1, 2, 0.5)
    assert (rates["other"]["secrets"], rates["other"]["lost"]) == (2, 0.0)
    assert all(rate["low"] <= rate["lost"] <= rate["high"] for rate in rates.values())


def test_a_game_lost_in_a_family_ends_with_one_letter_missing():
    # Known after five guesses: _ATCH, neither B, C, M nor P. Only WATCH is left. CATCH ignored
    # that CRANE's C was not in its place.
    (ending,) = lost_games([LOST, WON], KNOWLEDGE)
    assert (ending.one_missing, ending.left, ending.ignored, ending.wasted) == (
        True, 1, True, False,
    )  # fmt: skip


def test_a_lost_game_that_used_every_clue_ignored_none():
    fitting = played("watch", "crane", "batch", "match", None, "patch", None)
    (ending,) = lost_games([fitting], KNOWLEDGE)
    # CATCH does not fit, because CRANE's C was not in its place.
    assert (ending.ignored, ending.wasted, ending.left) == (False, True, 1)
    assert ending.one_missing


def test_finishing_counts_turns_with_a_single_fitting_word():
    assert finishing([WON], KNOWLEDGE) == {"turns": 0, "named": None}
    # CRANE leaves BATCH, MATCH, PATCH and WATCH. Only the last turn of LOST has a single word.
    assert finishing([LOST], KNOWLEDGE) == {"turns": 1, "named": 0.0}
    found = finishing([LOST, played("crane", "watch", "crane")], KNOWLEDGE)
    assert found == {"turns": 2, "named": 0.5}


def test_secrets_lost_by_all_runs_are_in_alphabetical_order():
    first = [played("watch", *["crane"] * 6), played("batch", *["crane"] * 6), WON]
    second = [played("crane", *["watch"] * 6), played("batch", *["crane"] * 6)]
    assert lost_by_all([first]) == ["batch"]
    assert lost_by_all([first, second]) == ["batch", "crane"]
    assert lost_by_all([second, [played("crane", "crane")]]) == ["batch"]


def test_independent_losses_would_rarely_meet():
    assert expected_in_common([0.1, 0.1, 0.2], 300) == pytest.approx(0.6)


def test_win_shares_are_of_each_secret():
    assert win_shares([LOST, WON, WON, played("crane", "crane")]) == {
        "watch": pytest.approx(2 / 3), "crane": 1.0,
    }  # fmt: skip
