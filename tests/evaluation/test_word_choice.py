"""Kinds of words that a player guesses, against counts by hand."""

from __future__ import annotations

from functools import partial

import pytest

from tests.helpers.played_games import played_with
from wordle_rl.evaluation.word_choice import (
    describe_openers,
    opener_bits,
    repeats_letter,
    word_choice,
    words_left,
)
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, Game, State, feedback_code
from wordle_rl.words.lists import WordLists

ANSWERS = ("crane", "crate", "glass", "grace", "slate")
WORDS = WordLists(answers=ANSWERS, allowed=(*ANSWERS[:4], "loops", ANSWERS[4], "trees", "virus"))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))

played = partial(played_with, WORDS.allowed_set)


@pytest.mark.parametrize(("word", "repeats"), [("glass", True), ("sissy", True), ("crane", False)])
def test_a_word_repeats_a_letter_if_it_has_one_twice(word, repeats):
    assert repeats_letter(word) is repeats


def test_openers_are_among_all_allowed_words():
    choice = word_choice(
        [played("crane", "trees", "crane"), played("glass", "crane", "glass")],
        KNOWLEDGE, openers=True,
    )  # fmt: skip
    assert choice is not None and choice.guesses == 2
    assert (choice.made.plurals, choice.made.repeats, choice.made.answers) == (0.5, 0.5, 0.5)
    # Of the 8 allowed words: loops and trees; glass, loops, trees; five answers.
    fitting = choice.fitting
    assert (fitting.plurals, fitting.repeats, fitting.answers) == (2 / 8, 3 / 8, 5 / 8)


def test_later_guesses_are_compared_with_the_words_that_fit():
    game = played("glass", "trees", "glass")
    choice = word_choice([game], KNOWLEDGE, openers=False)
    assert choice is not None and choice.guesses == 1
    # T, R and E are absent and the S is in place, so GLASS and LOOPS fit, but not VIRUS with its R.
    assert (choice.made.plurals, choice.made.answers) == (0.0, 1.0)
    assert (choice.fitting.plurals, choice.fitting.repeats, choice.fitting.answers) == (0.5, 1, 0.5)


def test_guesses_outside_the_list_do_not_count():
    assert word_choice([played("crane", None, "zzzzz")], KNOWLEDGE, openers=True) is None
    assert word_choice([played("crane", "crane")], KNOWLEDGE, openers=False) is None
    assert describe_openers([played("crane", "zzzzz")], KNOWLEDGE) == {}


def test_openers_are_described_by_the_most_common_one():
    games = [played("crane", "trees", "crane"), played("glass", "crane"), played("slate", "crane")]
    found = describe_openers(games, KNOWLEDGE)
    assert (found["word"], found["share"], found["different"]) == ("crane", 2 / 3, 2)
    crane, trees = (KNOWLEDGE.opener_bits[WORDS.guess_index[w]] for w in ("crane", "trees"))
    assert found["bits"] == pytest.approx(crane)
    assert found["mean_bits"] == pytest.approx((2 * crane + trees) / 3)
    assert found["rank"] == 1 + sum(bits > crane + 1e-9 for bits in KNOWLEDGE.opener_bits)
    assert opener_bits(games, KNOWLEDGE) == pytest.approx([trees, crane, crane])


def test_a_game_that_is_over_keeps_what_it_had_reached():
    won = played("crane", "slate", "crane")
    # SLATE leaves crane and grace of the answers, because both have A and E where SLATE does.
    late = played("crane", "slate", None, "grace", "crane")
    found = words_left([won, late], KNOWLEDGE, 4)
    assert [found[turn]["won"] for turn in "1234"] == [0, 0.5, 0.5, 1]
    assert [found[turn]["left"] for turn in "1234"] == [2, 1.5, 1, 1]


def test_games_that_began_with_clues_have_no_words_left_by_turn():
    clue = Clue("slate", feedback_code("slate", "crane"))
    begun = Game("crane", WORDS.allowed_set, state=State((clue,), 1))
    begun.play("crane")
    assert words_left([begun], KNOWLEDGE, 6) == {}
