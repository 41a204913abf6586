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


def draw_answers(count: int) -> list[tuple[int, ...]]:
    """Different answers of three tokens above 40 and a 0 at their end."""
    draw = np.random.default_rng(1)
    answers = {(*draw.integers(41, 47, 3).tolist(), 0) for _ in range(4 * count)}
    return sorted(answers)[:count]


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
    engine, answers = make(qwen(vocab_size=VOCAB, seed=3)).engine(), draw_answers(60)
    answer_list = AnswerList.of((str(i), ids) for i, ids in enumerate(answers))
    scores = [score(engine, prompt, answers) for prompt in PROMPTS]
    first, second = sorted(scores[2], key=scores[2].__getitem__)[:-3:-1]
    indices = np.array([i for i, ids in enumerate(answers) if ids != first])
    grammar = [answer_list.begin(), answer_list.begin(), answer_list.begin(indices)]
    results = complete_likeliest(engine, PROMPTS, grammar, beams=60, stop_ids=STOPS, max_tokens=9)
    assert [tuple(answer.ids) for answer in results[::2]] == [first, second]
    for answer, by_ids in zip(results[:2], scores, strict=False):
        assert by_ids[tuple(answer.ids)] == max(by_ids.values())
        assert sum(answer.logprobs) == pytest.approx(max(by_ids.values()), abs=1e-5)
    greedy_ids = [token_by_token(engine, prompt, answer_list.begin()) for prompt in PROMPTS[:2]]
    assert greedy_ids != [tuple(answer.ids) for answer in results[:2]]  # so the search matters
    one_beam = complete_likeliest(engine, PROMPTS, grammar, beams=1, stop_ids=STOPS, max_tokens=9)
    assert greedy_ids == [tuple(answer.ids) for answer in one_beam[:2]]


def test_without_a_grammar_it_is_the_likeliest_text_that_ends():
    engine = torch_model(qwen(vocab_size=VOCAB, seed=3)).engine()
    tokens = [token for token in range(VOCAB) if token not in STOPS]
    for prompt in PROMPTS[:2]:
        first, *rest = engine.next_logprobs([prompt, *([*prompt, token] for token in tokens)])
        scores = {(token,): first[token] for token in STOPS}
        for token, second in zip(tokens, rest, strict=True):
            scores |= {(token, last): first[token] + second[last] for last in range(VOCAB)}
        [completion] = complete_likeliest(
            engine, [prompt], None, beams=VOCAB, stop_ids=STOPS, max_tokens=2
        )
        assert scores[tuple(completion.ids)] == max(scores.values())
        ended = completion.ids[-1] in STOPS
        assert completion.stop is (StopReason.STOP_TOKEN if ended else StopReason.TOKEN_LIMIT)
