"""Scripted players as opponents, and what is computed of a board."""

import numpy as np
import pytest

from wordle_rl.commands.play import load_opponent
from wordle_rl.game.rules import Clue, State, feedback_code

AFTER_CRANE = State((Clue("crane", feedback_code("crane", "slate")),), 1)


def test_a_player_that_draws_has_the_chances_of_its_pool():
    consistent = load_opponent(player="random_consistent")
    _, chances = consistent.ask(AFTER_CRANE)
    left = consistent.knowledge.candidate_words(AFTER_CRANE)
    assert chances is not None and chances.words == dict.fromkeys(left, 1 / len(left))
    assert {*chances.letters[4]} == {word[4] for word in left}
    _, anything = load_opponent(player="random").ask(AFTER_CRANE)
    assert anything is not None and len(anything.words) == 12_972


def slow_bits(guess: str, candidates: list[str]) -> float:
    codes = [feedback_code(guess, secret) for secret in candidates]
    shares = np.array([codes.count(code) for code in set(codes)]) / len(codes)
    return float(-(shares * np.log2(shares)).sum())


def test_words_left_and_bits_are_those_of_counting_by_hand():
    opponent = load_opponent(player="entropy")
    state = State((*AFTER_CRANE.clues, Clue("sooth", feedback_code("sooth", "slate"))), 2)
    left = [
        word
        for word in opponent.knowledge.words.answers
        if all(feedback_code(c.guess, word) == c.feedback for c in state.clues)
    ]
    facts = opponent.judge(state, "slate")
    assert (facts["candidates"], facts["some"]) == (len(left), left[:12]) and len(left) > 2
    assert facts["bits"] == pytest.approx(slow_bits("slate", left))
    assert facts["best_bits"] == pytest.approx(slow_bits(facts["best"], left))
    assert facts["best_bits"] >= facts["bits"] and facts["fits"]
    assert not opponent.judge(state, "crane")["fits"]
    empty = opponent.judge(State(), None)
    assert (empty["candidates"], empty["best"], empty["bits"]) == (2315, "soare", None)
    assert empty["best_bits"] == pytest.approx(5.886, abs=1e-3)
    mound = Clue("crane", feedback_code("crane", "mound"))
    against = opponent.judge(State((*AFTER_CRANE.clues, mound), 2), "slate")
    assert (against["candidates"], against["best"], against["bits"]) == (0, None, 0.0)
