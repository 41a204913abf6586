"""The facts of a turn, on the original lists."""

from __future__ import annotations

import numpy as np
import pytest

from wordle_rl.evaluation.turn_facts import TurnJudge
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, State, feedback_code


def clue(guess: str, secret: str) -> Clue:
    return Clue(guess, feedback_code(guess, secret))


def slow_bits(guess: str, candidates: list[str]) -> float:
    codes = [feedback_code(guess, secret) for secret in candidates]
    shares = np.array([codes.count(code) for code in set(codes)]) / len(codes)
    return float(-(shares * np.log2(shares)).sum())


def test_words_left_and_bits_are_those_of_counting_by_hand(original: Knowledge):
    state = State((clue("crane", "slate"), clue("sooth", "slate")), 2)
    left = [
        word
        for word in original.words.answers
        if all(feedback_code(c.guess, word) == c.feedback for c in state.clues)
    ]
    facts = TurnJudge(original).judge(state, "slate")
    assert (facts.candidates, facts.some) == (len(left), tuple(left[:12])) and len(left) > 2
    assert facts.bits == pytest.approx(slow_bits("slate", left))
    assert facts.best is not None
    assert facts.best_bits == pytest.approx(slow_bits(facts.best, left))
    assert facts.best_bits >= facts.bits
    assert facts.fits is True
    assert TurnJudge(original).judge(state, "crane").fits is False


def test_an_empty_board_and_one_that_nothing_fits(original: Knowledge):
    empty = TurnJudge(original).judge(State(), None)
    assert (empty.candidates, empty.best, empty.bits) == (2315, "soare", None)
    assert empty.best_bits == pytest.approx(5.886, abs=1e-3)
    against = State((clue("crane", "slate"), clue("crane", "mound")), 2)
    facts = TurnJudge(original).judge(against, "slate")
    assert (facts.candidates, facts.some, facts.best, facts.bits) == (0, (), None, 0.0)
