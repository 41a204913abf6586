"""The likeliest whole answers, against scoring every answer in full."""

from typing import Any

import numpy as np
import pytest

from tests.helpers.engines import STOPS, VOCAB, mlx_model, torch_model
from tests.helpers.tiny import qwen
from wordle_rl.policy.engine import StopReason
from wordle_rl.policy.grammar import AnswerList, OpenAnswer
from wordle_rl.rollouts.likeliest import complete_likeliest

PROMPTS = [[3, 9], [4, 8, 20], [3, 9]]
Scores = dict[tuple[int, ...], float]


def some_answers(count: int) -> list[tuple[int, ...]]:
    """Different answers of three tokens above 40 and a 0 at their end."""
    draw = np.random.default_rng(1)
    every = {(*draw.integers(41, 47, 3).tolist(), 0) for _ in range(4 * count)}
    return sorted(every)[:count]


def score(engine: Any, prompt: list[int], answers: list[tuple[int, ...]]) -> Scores:
    """Log-probability of each answer, token by token."""
    scores = {}
    for ids in answers:
        rows = engine.next_logprobs([[*prompt, *ids[:n]] for n in range(len(ids))])
        scores[ids] = sum(float(row[token]) for row, token in zip(rows, ids, strict=True))
    return scores


def token_by_token(engine: Any, prompt: list[int], place: OpenAnswer | str) -> tuple[int, ...]:
    ids = []
    while not isinstance(place, str):
        row = engine.next_logprobs([[*prompt, *ids]])[0]
        ids.append(int(place.choices[row[place.choices].argmax()]))
        place = place.after(ids[-1])
    return tuple(ids)


@pytest.mark.parametrize("make", [torch_model, mlx_model])
def test_it_is_the_likeliest_of_all_that_the_grammar_allows(make):
    engine, answers = make(qwen(vocab_size=VOCAB, seed=3)).engine(), some_answers(60)
    listed = AnswerList.of((str(i), ids) for i, ids in enumerate(answers))
    scores = [score(engine, prompt, answers) for prompt in PROMPTS]
    first, second = sorted(scores[2], key=scores[2].__getitem__)[:-3:-1]
    others = np.array([i for i, ids in enumerate(answers) if ids != first])
    grammar = [listed.begin(), listed.begin(), listed.begin(others)]
    found = complete_likeliest(engine, PROMPTS, grammar, beams=60, stop_ids=STOPS, max_tokens=9)
    assert [tuple(answer.ids) for answer in found[::2]] == [first, second]
    for answer, known in zip(found[:2], scores, strict=False):
        assert known[tuple(answer.ids)] == max(known.values())
        assert sum(answer.logprobs) == pytest.approx(max(known.values()), abs=1e-5)
    greedy = [token_by_token(engine, prompt, listed.begin()) for prompt in PROMPTS[:2]]
    assert greedy != [tuple(answer.ids) for answer in found[:2]]  # so the search matters
    one = complete_likeliest(engine, PROMPTS, grammar, beams=1, stop_ids=STOPS, max_tokens=9)
    assert greedy == [tuple(answer.ids) for answer in one[:2]]


def test_without_a_grammar_it_is_the_likeliest_text_that_ends():
    engine = torch_model(qwen(vocab_size=VOCAB, seed=3)).engine()
    going = [token for token in range(VOCAB) if token not in STOPS]
    for prompt in PROMPTS[:2]:
        first, *rest = engine.next_logprobs([prompt, *([*prompt, token] for token in going)])
        known = {(token,): first[token] for token in STOPS}
        for token, second in zip(going, rest, strict=True):
            known |= {(token, last): first[token] + second[last] for last in range(VOCAB)}
        [found] = complete_likeliest(
            engine, [prompt], None, beams=VOCAB, stop_ids=STOPS, max_tokens=2
        )
        assert known[tuple(found.ids)] == max(known.values())
        ended = found.ids[-1] in STOPS
        assert found.stop is (StopReason.STOP_TOKEN if ended else StopReason.TOKEN_LIMIT)
