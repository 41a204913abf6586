"""Scripted players as opponents, and a model that thinks before it guesses."""

from __future__ import annotations

import pytest

from wordle_rl.commands.play import load_opponent
from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.web.opponent import Abandoned

AFTER_CRANE = State((Clue("crane", feedback_code("crane", "slate")),), 1)


def test_a_solver_guesses_one_word_with_certainty():
    asked = load_opponent(player="entropy").ask(State())
    assert asked.turn.guess == "salet"
    assert asked.chances is not None and asked.chances.words == {"salet": 1.0}


def test_a_player_that_draws_has_the_chances_of_its_pool():
    consistent = load_opponent(player="random_consistent")
    asked = consistent.ask(AFTER_CRANE)
    left = consistent.knowledge.candidate_words(AFTER_CRANE)
    assert asked.chances is not None and asked.chances.words == dict.fromkeys(left, 1 / len(left))
    anything = load_opponent(player="random").ask(AFTER_CRANE).chances
    assert anything is not None and len(anything.words) == 12_972


def test_a_player_that_writes_gibberish_has_none():
    opponent = load_opponent(player="gibberish")
    watched = opponent.play("slate")
    assert opponent.chances(watched, 0) is None
    assert opponent.ask(State()).chances is None


def test_a_game_can_be_abandoned_between_two_turns():
    with pytest.raises(Abandoned):
        load_opponent(player="entropy").play("slate", lambda: True)
