"""The rollout engine draws what a plain forward pass would draw, whatever shares its batch.

Each test runs on torch and on MLX, with and without sliding windows, and on servers that speak as
vLLM does. Servers draw for themselves. So their games repeat only greedily, and the two tests that
compare draws with given uniforms leave them out.
"""

import random
from itertools import repeat
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.engines import (
    ENGINE_MODELS,
    GREEDY,
    SAMPLED,
    STOPS,
    VOCAB,
    EngineModel,
    assert_same,
)
from tests.helpers.tiny import full_logprobs
from wordle_rl.policy.engine import Completion, StopReason
from wordle_rl.policy.prefix_cache import find_prefixes
from wordle_rl.policy.sampling import Draws, Sampling


def numbers(rollout: int, turn: int) -> np.ndarray:
    return Draws(seed=7, step=0).uniforms(np.array([rollout]), turn, 7)[0]


def prompts(n: int, turn: int) -> list[list[int]]:
    """Prompts of 1 to 9 tokens, another one for each row and turn."""
    random = np.random.default_rng([n, turn])
    return [random.integers(0, VOCAB, 1 + (5 * row + turn) % 9).tolist() for row in range(n)]


def slow_answer(
    model: Any, context: list[int], sampling: Sampling, uniforms: np.ndarray
) -> Completion:
    """One answer, token by token, each from a forward pass over everything before it."""
    ids: list[int] = []
    logprobs: list[float] = []
    for uniform in uniforms:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([context + ids])).logits[0, -1].double()
        if sampling.temperature:
            logits = logits / sampling.temperature
        table = logits.log_softmax(-1).numpy()
        greedy = sampling.temperature == 0.0
        sums = np.exp(table).cumsum()
        token = int(table.argmax() if greedy else (sums > uniform * sums[-1]).argmax())
        ids.append(token)
        logprobs.append(float(table[token]))
        if token in STOPS:
            return Completion(ids=ids, logprobs=logprobs, stop=StopReason.STOP_TOKEN)
    return Completion(ids=ids, logprobs=logprobs, stop=StopReason.TOKEN_LIMIT)


def play(
    engine: Any, rollouts: list[int], sampling: Sampling, *, turns: int = 3
) -> list[list[Completion]]:
    """Answers by rollout and turn; the conversation in place i is rollout rollouts[i]."""
    answers: list[list[Completion]] = [[] for _ in rollouts]
    talks: list[list[int]] = [[] for _ in rollouts]
    for turn in range(turns):
        feeds = prompts(6, turn)
        for talk, i in zip(talks, rollouts, strict=True):
            talk += feeds[i]
        outputs = engine.complete(talks, sampling, np.stack([numbers(i, turn) for i in rollouts]))
        for row, talk, completion in zip(answers, talks, outputs, strict=True):
            row.append(completion)
            talk += completion.ids
    return answers


def need_repeatable(models: EngineModel, sampling: Sampling) -> None:
    if sampling is SAMPLED and not models.takes_uniforms:
        pytest.skip("the servers draw for themselves")


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_batched_games_get_the_tokens_and_logprobs_of_plain_forward_passes(models, sampling):
    need_repeatable(models, sampling)
    games = play(models.engine(), list(range(6)), sampling)
    expected: list[list[Completion]] = []
    for row in range(6):  # rows 2 and 9: nothing shares a batch here, nothing is padded or cached
        context: list[int] = []
        expected.append([])
        for turn in range(3):
            context += prompts(6, turn)[row]
            answer = slow_answer(models.plain, context, sampling, numbers(row, turn))
            context += answer.ids
            expected[-1].append(answer)
    assert_same(games, expected)
    lengths = {len(c.ids) for game in games for c in game}
    assert len(lengths) > 1, "the games must be ragged for this to mean anything"


def test_logprobs_seen_while_decoding_are_those_of_one_pass_over_the_conversation(models):  # row 2
    for row, game in enumerate(play(models.engine(), list(range(6)), SAMPLED)):
        ids: list[int] = []
        places: list[int] = []
        for turn, completion in enumerate(game):
            ids += prompts(6, turn)[row]
            places += range(len(ids), len(ids) + len(completion.ids))
            ids += completion.ids
        logprobs = np.concatenate([c.logprobs for c in game])
        all_logprobs = full_logprobs(models.plain, ids, temperature=SAMPLED.temperature)
        assert np.abs(all_logprobs[places] - logprobs).max() < 1e-4


def test_answers_do_not_depend_on_what_else_is_asked(models):
    """Conversations that repeat, fork, stop for a while, leave, and begin like others."""
    engine = models.engine()
    draw = random.Random(3)
    talks: list[list[int]] = [[3, 1, 4], [3, 1, 4, 1, 5], [9]]
    for call in range(8):
        batch = [draw.choice(talks)[:] for _ in range(draw.randint(1, 5))]
        if draw.random() < 0.3:  # something else that begins like a conversation
            batch[0] = [*batch[0][: draw.randint(0, len(batch[0]))], 7, 2]
        uniforms = np.stack([numbers(i, call) for i in range(len(batch))])
        answers = engine.complete(batch, models.repeatable, uniforms)
        singles = map(slow_answer, repeat(models.plain), batch, repeat(models.repeatable), uniforms)
        assert_same([answers], [[*singles]])
        suffix = [draw.randint(0, VOCAB - 1) for _ in range(draw.randint(1, 4))]
        talks += [[*ids, *answer.ids, *suffix] for ids, answer in zip(batch, answers, strict=True)]


def assert_as_alone(models: EngineModel, engine: Any, batch: list[list[int]]) -> None:
    uniforms = np.stack([numbers(i, 0) for i in range(len(batch))])
    answers = engine.complete(batch, models.repeatable, uniforms)
    singles = map(slow_answer, repeat(models.plain), batch, repeat(models.repeatable), uniforms)
    assert_same([answers], [[*singles]])


def test_prompts_share_no_more_of_an_opening_than_all_of_them_have(models):
    opening = [3, 1, 4, 1, 5, 9, 2, 6]
    batch = [[*opening, 5], [*opening[:3], 7, 7, 8, 2, 1, 6], [*opening, 8]]
    assert_as_alone(models, models.engine(), batch)


@pytest.mark.parametrize("models", ["torch qwen", "mlx qwen"], indirect=True)
def test_what_a_call_that_failed_had_fed_counts_for_nothing(models, monkeypatch):
    engine, batch = models.engine(), [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]
    assert_as_alone(models, engine, batch)
    feed = engine._model.feed

    def fail(ids: Any, starts: Any, last: Any) -> Any:
        feed(ids, starts, last)  # it writes over what the rows held
        raise RuntimeError("lost")

    monkeypatch.setattr(engine._model, "feed", fail)
    with pytest.raises(RuntimeError, match="lost"):
        engine.complete([[8, 8, 8, 8, 8, 8, 8], [7] * 7], GREEDY, np.zeros((2, 7)))
    monkeypatch.undo()
    assert_as_alone(models, engine, [[*row, 4, 4] for row in batch])


@pytest.mark.parametrize("models", ["torch qwen", "mlx qwen"], indirect=True)
def test_only_what_is_new_is_fed(models):
    engine = models.engine()
    shapes: list[tuple[int, int]] = []  # rows and tokens of each forward pass
    feed = engine._model.feed

    def count(ids, *rest):
        shapes.append(ids.shape)
        return feed(ids, *rest)

    engine._model.feed = count
    sampling = Sampling(max_tokens=1)
    uniforms = np.full((5, 1), 0.5)
    answers = engine.complete([[1, 2, 3, 4]] * 2 + [[1, 2, 3, 5, 6]] * 3, sampling, uniforms)
    assert shapes == [(1, 3), (2, 2)], "the common beginning once, then what differs, once each"
    shapes.clear()
    talks = [[1, 2, 3, 4, *answers[0].ids, 8, 9], [1, 2, 3, 5, 6, *answers[2].ids, 8]]
    engine.complete(talks, sampling, uniforms)
    assert shapes == [(2, 3)], "the last drawn token and the new ones"
    shapes.clear()
    engine.complete([[*talks[0], 5]] * 4, sampling, uniforms)
    assert shapes == [(1, 1)], "a longer prompt, once for all four"


def test_the_best_beginning_is_found_among_all_rows():
    draw = random.Random(0)
    for _ in range(200):
        rows = [tuple(draw.choices((1, 2), k=draw.randint(0, 6))) for _ in range(5)]
        prompt = tuple(draw.choices((1, 2), k=draw.randint(1, 6)))

        def count_shared(row: tuple[int, ...], prompt: tuple[int, ...] = prompt) -> int:
            limit = min(len(row), len(prompt) - 1)
            return max(n for n in range(limit + 1) if row[:n] == prompt[:n])

        [(row, count)] = find_prefixes([prompt], rows)
        assert count == max(map(count_shared, rows)) == (count_shared(rows[row]) if count else 0)


def test_an_answer_without_a_stop_token_ends_at_the_token_limit(models):
    engine = models.engine(stops=frozenset({VOCAB + 1}))
    [completion] = engine.complete([[1, 2, 3]], models.repeatable, numbers(0, 0)[None])
    assert completion.stop is StopReason.TOKEN_LIMIT
    assert len(completion.ids) == len(completion.logprobs) == SAMPLED.max_tokens


@pytest.mark.parametrize("prompt", [1, 5, 9, 11])
def test_an_answer_never_outgrows_the_context(models, prompt):
    engine = models.engine(stops=frozenset({VOCAB + 1}), max_context=12)
    uniforms = Draws(seed=1, step=0).uniforms(np.arange(2), 0, 40)
    batch = [[1] * prompt, [2] * 8]
    first, second = engine.complete(batch, Sampling(max_tokens=40), uniforms)
    assert first.stop is second.stop is StopReason.CONTEXT_FULL
    assert (len(first.ids), len(second.ids)) == (12 - prompt, 4)


@pytest.mark.parametrize("tokens", [0, 12, 13])
def test_a_prompt_must_have_a_token_and_leave_room_for_one(models, tokens):
    engine = models.engine(max_context=12)
    asks: list[Any] = [lambda p: engine.complete(p, GREEDY, np.zeros((2, 7)))]
    if models.takes_uniforms:  # servers are not asked for distributions
        asks.append(engine.next_logprobs)
    for ask in asks:
        with pytest.raises(ValueError, match=f"must have 1 to 11 tokens, not {tokens}"):
            ask([[1] * 11, [1] * tokens])


@pytest.mark.parametrize(  # servers are not asked for distributions
    "models", [name for name in ENGINE_MODELS if not name.startswith("vllm")], indirect=True
)
def test_next_logprobs_are_those_of_a_plain_forward_pass_and_change_no_answer(models):
    texts = prompts(4, 0)
    engine = models.engine()
    batch = [texts[i] for i in (2, 0, 3, 2)]
    for ids, logprobs in zip(batch, engine.next_logprobs(batch), strict=True):
        with torch.no_grad():
            logits = models.plain(input_ids=torch.tensor([ids])).logits[0, -1]
        assert np.abs(logits.log_softmax(-1).numpy() - logprobs).max() < 1e-4
    uniforms = np.stack([numbers(i, 0) for i in range(4)])
    answers = engine.complete(texts, models.repeatable, uniforms)
    assert_same([answers], [models.engine().complete(texts, models.repeatable, uniforms)])
