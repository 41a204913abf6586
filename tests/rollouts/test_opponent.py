"""Scripted players as opponents, and a model that thinks before it guesses."""

from __future__ import annotations

import pytest

from wordle_rl.game.rules import Clue, State, feedback_code
from wordle_rl.opponents import Loader
from wordle_rl.rollouts.opponent import Abandoned, Opponent

AFTER_CRANE = State((Clue("crane", feedback_code("crane", "slate")),), 1)


@pytest.fixture(scope="module")
def loader() -> Loader:
    return Loader()


def player(loader: Loader, name: str) -> Opponent:
    return loader.load(f"player={name}")


def test_a_solver_guesses_one_word_with_certainty(loader):
    asked = player(loader, "entropy").ask(State())
    assert asked.reply.parsed.guess == "salet"
    assert asked.chances is not None and asked.chances.words == {"salet": 1.0}


def test_a_player_that_draws_has_the_chances_of_its_pool(loader):
    consistent = player(loader, "random_consistent")
    asked = consistent.ask(AFTER_CRANE)
    left = consistent.knowledge.candidate_words(AFTER_CRANE)
    assert asked.chances is not None and asked.chances.words == dict.fromkeys(left, 1 / len(left))
    anything = player(loader, "random").ask(AFTER_CRANE).chances
    assert anything is not None and len(anything.words) == 12_972


def test_a_player_that_writes_gibberish_has_none(loader):
    opponent = player(loader, "gibberish")
    watched = opponent.play("slate")
    assert opponent.chances(watched, 0) is None
    assert opponent.ask(State()).chances is None


def test_players_with_the_same_lists_share_what_they_know(loader):
    names = ("entropy", "random")
    first, second = (player(loader, name).knowledge for name in names)
    assert first is second


def test_a_game_can_be_abandoned_between_two_turns(loader):
    with pytest.raises(Abandoned):
        player(loader, "entropy").play("slate", lambda: True)
