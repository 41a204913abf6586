"""Scripted players as opponents, and what is computed of a board."""

import numpy as np
import pytest

from wordle_rl.commands.play import load_opponent
from wordle_rl.game.rules import Clue, State, feedback_code

AFTER_CRANE = State((Clue("crane", feedback_code("crane", "slate")),), 1)


def test_a_player_that_draws_has_the_chances_of_its_pool():
    opponent = load_opponent(player="random_consistent")
    _, chances = opponent.ask(AFTER_CRANE)
    words = opponent.knowledge.candidate_words(AFTER_CRANE)
    assert chances is not None and chances.words == dict.fromkeys(words, 1 / len(words))
    assert {*chances.letters[4]} == {word[4] for word in words}
    _, random_chances = load_opponent(player="random").ask(AFTER_CRANE)
    assert random_chances is not None and len(random_chances.words) == 12_972


def slow_bits(guess: str, candidates: list[str]) -> float:
    codes = [feedback_code(guess, secret) for secret in candidates]
    shares = np.array([codes.count(code) for code in set(codes)]) / len(codes)
    return float(-(shares * np.log2(shares)).sum())


def test_words_left_and_bits_are_those_of_counting_by_hand():
    opponent = load_opponent(player="entropy")
    state = State((*AFTER_CRANE.clues, Clue("sooth", feedback_code("sooth", "slate"))), 2)
    words = [
        word
        for word in opponent.knowledge.words.answers
        if all(feedback_code(c.guess, word) == c.feedback for c in state.clues)
    ]
    facts = opponent.judge(state, "slate")
    assert (facts["candidates"], facts["some"]) == (len(words), words[:12]) and len(words) > 2
    assert facts["bits"] == pytest.approx(slow_bits("slate", words))
    assert facts["best_bits"] == pytest.approx(slow_bits(facts["best"], words))
    assert facts["best_bits"] >= facts["bits"] and facts["fits"]
    assert not opponent.judge(state, "crane")["fits"]
    start = opponent.judge(State(), None)
    assert (start["candidates"], start["best"], start["bits"]) == (2315, "soare", None)
    assert start["best_bits"] == pytest.approx(5.886, abs=1e-3)
    mound = Clue("crane", feedback_code("crane", "mound"))
    conflict = opponent.judge(State((*AFTER_CRANE.clues, mound), 2), "slate")
    assert (conflict["candidates"], conflict["best"], conflict["bits"]) == (0, None, 0.0)
