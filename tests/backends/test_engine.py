"""The rollout engine draws what a plain forward pass would draw, whatever shares its batch.

Each test runs on torch and on MLX, with and without sliding windows, and on servers that speak as
vLLM does. Servers draw for themselves. So their games repeat only greedily, and the two tests that
compare draws with given uniforms leave them out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.engines import (
    ENGINE_MODELS,
    GREEDY,
    SAMPLED,
    VOCAB,
    EngineModel,
    assert_same,
    numbers,
    play,
    prompts,
    slow_answer,
)
from tests.helpers.tiny import full_logprobs
from wordle_rl.policy.engine import Completion, StopReason
from wordle_rl.policy.sampling import Sampling, uniforms


def need_repeatable(models: EngineModel, sampling: Sampling) -> None:
    if sampling is SAMPLED and not models.takes_uniforms:
        pytest.skip("the servers draw for themselves")


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_batched_games_get_the_tokens_and_logprobs_of_plain_forward_passes(models, sampling):
    need_repeatable(models, sampling)
    engine = models.engine()
    batched = play(engine, engine.open(6), list(range(6)), sampling)
    expected: list[list[Completion]] = []
    for row in range(6):  # rows 2 and 9: nothing shares a batch here, nothing is padded or cached
        context: list[int] = []
        expected.append([])
        for turn in range(3):
            context += prompts(6, turn)[row]
            answer = slow_answer(models.plain, context, sampling, numbers(row, turn))
            context += answer.ids
            expected[-1].append(answer)
    assert_same(batched, expected)
    lengths = {len(c.ids) for game in batched for c in game}
    assert len(lengths) > 1, "the games must be ragged for this to mean anything"


def test_logprobs_seen_while_decoding_are_those_of_one_pass_over_the_conversation(models):  # row 2
    engine = models.engine()
    for row, game in enumerate(play(engine, engine.open(6), list(range(6)), SAMPLED)):
        ids: list[int] = []
        places: list[int] = []
        for turn, completion in enumerate(game):
            ids += prompts(6, turn)[row]
            places += range(len(ids), len(ids) + len(completion.ids))
            ids += completion.ids
        seen = np.concatenate([c.logprobs for c in game])
        whole = full_logprobs(models.plain, ids, temperature=SAMPLED.temperature)
        assert np.abs(whole[places] - seen).max() < 1e-4


@pytest.mark.parametrize("sampling", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
def test_answers_do_not_depend_on_batch_size_or_order(models, sampling):
    need_repeatable(models, sampling)
    engine = models.engine()
    together = play(engine, engine.open(6), list(range(6)), sampling)
    engine = models.engine()
    shuffled = play(engine, engine.open(6)[::-1], [3, 0, 5, 1, 4, 2], sampling)
    assert_same([shuffled[i] for i in (1, 3, 5, 0, 4, 2)], together)
    alone = []
    for rollout in range(6):
        engine = models.engine()
        alone += play(engine, engine.open(1), [rollout], sampling)
    assert_same(alone, together)


def test_answers_do_not_depend_on_neighbours_that_leave_or_join(models):
    engine = models.engine()
    expected = play(engine, engine.open(6), list(range(6)), models.repeatable)
    engine = models.engine()
    rows = engine.open(6)
    answers: dict[int, list[Completion]] = {i: [] for i in range(6)}
    leaving = {0: [0, 4], 1: [2, 5, 1]}  # rollouts that leave after a turn
    live = list(range(6))
    for turn in range(3):
        feeds = prompts(6, turn)
        # Rows are fed one part after the other, and strangers come in between.
        for part in (live[1::2], live[::2]):
            assert all(engine.extend([rows[i] for i in part], [feeds[i] for i in part]))
            engine.extend(engine.open(1), [[1] * 30])
        drawn = engine.decode(
            [rows[i] for i in live], models.repeatable, np.stack([numbers(i, turn) for i in live])
        )
        for i, completion in zip(live, drawn, strict=True):
            answers[i].append(completion)
        gone = leaving.get(turn, [])
        engine.release([rows[i] for i in gone])
        live = [i for i in live if i not in gone]
    assert [len(answers[i]) for i in range(6)] == [1, 2, 2, 3, 1, 2]
    assert_same(
        [answers[i] for i in range(6)], [game[: len(answers[i])] for i, game in enumerate(expected)]
    )


def test_forked_rows_play_like_rows_that_were_fed_the_same(models):
    prefix, after = [3, 1, 4, 1, 5, 9], [[2], [6, 5, 3], [8, 9]]
    drawn = np.stack([numbers(i, 0) for i in range(3)])

    def fork_twice(engine: Any) -> tuple[list[list[Completion]], list[int]]:
        [row] = engine.open(1)
        engine.extend([row], [prefix])
        rows = [row, *engine.fork(row, 2)]
        first = engine.decode(rows, models.repeatable, drawn)
        engine.extend(rows, after)
        second = engine.decode(rows, models.repeatable, drawn[::-1])
        # A fork after an answer takes along the last token, which has not been fed yet.
        late = engine.fork(rows[1], 1)
        engine.extend(late, [[7, 7]])
        third = engine.decode(late, models.repeatable, drawn[:1])
        return [*([a, b] for a, b in zip(first, second, strict=True)), third], rows

    def feed_each(engine: Any) -> list[list[Completion]]:
        rows = engine.open(3)
        engine.extend(rows, [prefix] * 3)
        first = engine.decode(rows, models.repeatable, drawn)
        engine.extend(rows, after)
        second = engine.decode(rows, models.repeatable, drawn[::-1])
        history = [*prefix, *first[1].ids, *after[1], *second[1].ids, 7, 7]
        fresh = engine.open(1)
        engine.extend(fresh, [history])
        third = engine.decode(fresh, models.repeatable, drawn[:1])
        return [*([a, b] for a, b in zip(first, second, strict=True)), third]

    forked, _ = fork_twice(models.engine())
    assert_same(forked, feed_each(models.engine()))


def test_a_row_can_be_forked_no_times_at_all(models):
    engine = models.engine()
    [row] = engine.open(1)
    engine.extend([row], [[1, 2, 3]])
    assert engine.fork(row, 0) == []


def test_a_prompt_may_be_fed_whole_or_token_by_token(models):
    prompt = [5, 3, 2, 8, 1, 9, 4]
    whole, single = models.engine(), models.engine()
    [a], [b] = whole.open(1), single.open(1)
    whole.extend([a], [prompt])
    for token in prompt:
        single.extend([b], [[token]])
    drawn = numbers(0, 0)[None]
    assert_same(
        [whole.decode([a], models.repeatable, drawn)],
        [single.decode([b], models.repeatable, drawn)],
    )


def test_an_answer_without_a_stop_token_ends_at_the_token_limit(models):
    engine = models.engine(stops=frozenset({VOCAB + 1}))
    [row] = engine.open(1)
    engine.extend([row], [[1, 2, 3]])
    [completion] = engine.decode([row], models.repeatable, numbers(0, 0)[None])
    assert completion.stop is StopReason.TOKEN_LIMIT
    assert len(completion.ids) == len(completion.logprobs) == SAMPLED.max_tokens


def test_a_stop_token_drawn_at_the_token_limit_counts_as_a_stop_token(models):
    engine = models.engine(stops=frozenset(range(VOCAB)))
    [row] = engine.open(1)
    engine.extend([row], [[1, 2, 3]])
    [completion] = engine.decode([row], Sampling(max_tokens=1), numbers(0, 0)[None])
    assert completion.stop is StopReason.STOP_TOKEN and len(completion.ids) == 1


@pytest.mark.parametrize("prompt", [1, 5, 9, 11])
def test_an_answer_never_outgrows_the_context(models, prompt):
    engine = models.engine(stops=frozenset({VOCAB + 1}), max_context=12)
    rows = engine.open(2)
    assert engine.extend(rows, [[1] * prompt, [2] * 8]) == [True, True]
    drawn = uniforms(seed=1, step=0, rollouts=np.arange(2), turn=0, tokens=40)
    first, second = engine.decode(rows, Sampling(max_tokens=40), drawn)
    assert first.stop is second.stop is StopReason.CONTEXT_FULL
    assert (len(first.ids), len(second.ids)) == (12 - prompt, 4)
    assert engine.extend(rows, [[1], [1]]) == [False, False]


def test_a_prompt_fits_when_it_leaves_room_for_a_token(models):
    engine = models.engine(max_context=12)
    assert engine.extend(engine.open(3), [[1] * 11, [1] * 12, [1] * 13]) == [True, False, False]


def test_text_that_does_not_fit_leaves_its_row_as_it_was(models):
    engine = models.engine(max_context=20)
    brief = replace(models.repeatable, max_tokens=3)
    rows = engine.open(3)
    feeds = [[4, 2], [6, 6, 6], [1, 2, 3, 4]]
    assert engine.extend(rows, feeds) == [True] * 3
    drawn = np.stack([numbers(i, 0)[:3] for i in range(3)])
    answers = engine.decode(rows, brief, drawn)
    # Row 1's next message is too long, the others' are not.
    assert engine.extend(rows, [[9], [9] * 19, [9, 9]]) == [True, False, True]
    assert engine.extend([rows[1]], [[8, 8]]) == [True]
    after = engine.decode(rows, brief, drawn)

    for i, new in enumerate([[9], [8, 8], [9, 9]]):
        fresh = models.engine(max_context=20)
        row = fresh.open(1)
        fresh.extend(row, [[*feeds[i], *answers[i].ids, *new]])
        assert_same([fresh.decode(row, brief, drawn[i : i + 1])], [[after[i]]])


def test_extending_by_nothing_is_refused(models):
    engine = models.engine()
    rows = engine.open(2)
    with pytest.raises(ValueError, match="at least one token"):
        engine.extend(rows, [[1], []])


@pytest.mark.parametrize("models", [n for n in ENGINE_MODELS if "mlx" not in n], indirect=True)
def test_rows_that_were_not_extended_cannot_be_decoded(models):
    engine = models.engine()
    rows = engine.open(2)
    engine.extend(rows[:1], [[1, 2]])
    drawn = np.stack([numbers(i, 0) for i in range(2)])
    with pytest.raises(ValueError, match="extended"):
        engine.decode(rows, models.repeatable, drawn)
    engine.decode(rows[:1], models.repeatable, drawn[:1])
    with pytest.raises(ValueError, match="extended"):
        engine.decode(rows[:1], models.repeatable, drawn[:1])


def test_next_logprobs_are_those_of_a_plain_forward_pass_and_change_nothing(models):
    fed = prompts(4, 0)
    engine = models.engine()
    rows = engine.open(4)
    engine.extend(rows, fed)
    order = [2, 0, 3]
    found = engine.next_logprobs([rows[i] for i in order])
    for i, logprobs in zip(order, found, strict=True):
        with torch.no_grad():
            logits = models.plain(input_ids=torch.tensor([fed[i]])).logits[0, -1]
        assert np.abs(logits.log_softmax(-1).numpy() - logprobs).max() < 1e-4
    drawn = np.stack([numbers(i, 0) for i in range(4)])
    after = engine.decode(rows, models.repeatable, drawn)
    untouched = models.engine()
    others = untouched.open(4)
    untouched.extend(others, fed)
    assert_same([after], [untouched.decode(others, models.repeatable, drawn)])
