"""Solved examples for prompts."""

from __future__ import annotations

import pytest

from tests.helpers.thoughts import KNOWLEDGE, WORDS
from wordle_rl.game.rules import Rules
from wordle_rl.rollouts.teacher import draw_shots


def test_the_guesses_fit_their_states_which_have_more_and_more_clues() -> None:
    secrets = WORDS.answers[:12]
    shots = draw_shots(8, secrets, KNOWLEDGE, Rules(max_turns=3), seed=0)
    assert len(shots) == 8
    for number, shot in enumerate(shots):
        assert len(shot.state.clues) <= number % 3
        assert KNOWLEDGE.is_consistent(shot.guess, shot.state)
    assert {len(shot.state.clues) for shot in shots} == {0, 1, 2}
    assert draw_shots(8, secrets, KNOWLEDGE, Rules(max_turns=3), seed=0) == shots
    assert draw_shots(8, secrets, KNOWLEDGE, Rules(max_turns=3), seed=1) != shots


def test_there_are_no_more_examples_than_training_secrets() -> None:
    with pytest.raises(ValueError, match="shots must be at most 2, the number of training secrets"):
        draw_shots(3, WORDS.answers[:2], KNOWLEDGE, Rules(), seed=0)
    assert draw_shots(0, (), KNOWLEDGE, Rules(), seed=0) == ()
