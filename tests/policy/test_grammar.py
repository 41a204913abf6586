"""Answers that only a grammar's words can have: which tokens may come, and how likely they are."""

import itertools
import random

import numpy as np
import pytest

from wordle_rl.policy.grammar import AnswerList, OpenAnswer


def texts_of(place: OpenAnswer) -> dict[tuple[int, ...], str]:
    """All answers that can be drawn from a place on, with their words."""
    found = {}
    for token in place.choices.tolist():
        below = place.after(token)
        rest = {(): below} if isinstance(below, str) else texts_of(below)
        found |= {(token, *ids): word for ids, word in rest.items()}
    return found


def some_answers(seed: int) -> list[tuple[int, ...]]:
    """Answers of 2 to 4 tokens and a stop token 0 behind them, many of which begin alike."""
    draw = random.Random(seed)
    every = [ids for n in (2, 3, 4) for ids in itertools.product((1, 2, 3), repeat=n)]
    return [(*ids, 0) for ids in draw.sample(every, 20)]


@pytest.mark.parametrize("seed", range(5))
def test_a_place_leads_to_every_answer_that_is_left(seed):
    texts = some_answers(seed)
    answers = AnswerList.of((str(i), ids) for i, ids in enumerate(texts))
    assert texts_of(answers.begin()) == {ids: str(i) for i, ids in enumerate(texts)}
    for left in ([3], [19, 0, 7], range(1, 20)):
        words = {texts[i]: str(i) for i in left}
        assert texts_of(answers.begin(np.array(left))) == words
    assert [tuple(answers.ids(str(i))) for i in range(20)] == texts and answers.ids("20") == []
