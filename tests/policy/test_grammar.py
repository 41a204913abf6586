"""Answers that only a grammar's words can have: which tokens may come, and how likely they are."""

import itertools
import random

import numpy as np
import pytest

from wordle_rl.policy.grammar import AnswerList, OpenAnswer


def texts_of(place: OpenAnswer) -> dict[tuple[int, ...], str]:
    """All answers that can be drawn from a place on, with their words."""
    texts = {}
    for token in place.choices.tolist():
        node = place.after(token)
        rest = {(): node} if isinstance(node, str) else texts_of(node)
        texts |= {(token, *ids): word for ids, word in rest.items()}
    return texts


def some_answers(seed: int) -> list[tuple[int, ...]]:
    """Answers of 2 to 4 tokens and a stop token 0 behind them, many of which begin alike."""
    draw = random.Random(seed)
    pool = [ids for n in (2, 3, 4) for ids in itertools.product((1, 2, 3), repeat=n)]
    return [(*ids, 0) for ids in draw.sample(pool, 20)]


@pytest.mark.parametrize("seed", range(5))
def test_a_place_leads_to_every_answer_that_is_left(seed):
    texts = some_answers(seed)
    answers = AnswerList.of((str(i), ids) for i, ids in enumerate(texts))
    assert texts_of(answers.begin()) == {ids: str(i) for i, ids in enumerate(texts)}
    for indices in ([3], [19, 0, 7], range(1, 20)):
        words = {texts[i]: str(i) for i in indices}
        assert texts_of(answers.begin(np.array(indices))) == words
    assert [tuple(answers.ids(str(i))) for i in range(20)] == texts and answers.ids("20") == []
