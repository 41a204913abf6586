"""Answers that only a grammar's words can have: which tokens may come, and how likely they are."""

import itertools
import random

import pytest

from wordle_rl.policy.grammar import AnswerTree, OpenAnswer


def texts_of(place: OpenAnswer | None) -> set[tuple[int, ...]]:
    """All answers that can be drawn from a place on."""
    if place is None:
        return {()}
    return {
        (token, *rest) for token in place.choices.tolist() for rest in texts_of(place.after(token))
    }


def some_answers(seed: int) -> list[tuple[int, ...]]:
    """Answers of 2 to 4 tokens and a stop token 0 behind them, many of which begin alike."""
    draw = random.Random(seed)
    every = [ids for n in (2, 3, 4) for ids in itertools.product((1, 2, 3), repeat=n)]
    return [(*ids, 0) for ids in draw.sample(every, 20)]


@pytest.mark.parametrize("seed", range(5))
def test_a_place_leads_to_every_answer_but_those_taken_out(seed):
    answers = some_answers(seed)
    tree = AnswerTree.grow((str(i), ids) for i, ids in enumerate(answers))
    assert texts_of(OpenAnswer(tree)) == set(answers)
    for count in (1, 5, 19):
        without = answers[:count]
        assert texts_of(OpenAnswer(tree, tuple(without))) == set(answers[count:])
