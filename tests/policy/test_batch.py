"""Minibatches: whole groups, a pure function of seed, step and epoch, weighed each on its own."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import (
    batch_of,
    gradients,
    guessing_tokenizer,
    policy_of,
    qwen,
    recipe_of,
    step_of,
)
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.policy.batch import Batch, minibatches, split_distinct, split_padded
from wordle_rl.policy.policy import Policy
from wordle_rl.training.step import train_step

GROUPS = np.repeat([5, 1, 8, 3, 2, 7, 4], 3)


def deal(count: int, **place: int) -> list[list[int]]:
    parts = minibatches(GROUPS, count, **{"seed": 1, "step": 2, "epoch": 0, **place})
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_sequence_is_in_one_minibatch_and_no_group_is_split(count):  # row 11
    parts = deal(count)
    assert sorted(i for part in parts for i in part) == list(range(len(GROUPS)))
    for a in parts:
        for b in parts:
            assert a is b or not set(GROUPS[a]) & set(GROUPS[b])
    sizes = [len(set(GROUPS[part])) for part in parts]
    assert len(parts) == count and max(sizes) - min(sizes) <= 1


def test_the_deal_depends_on_seed_step_and_epoch_alone():
    first = deal(3)
    assert first == deal(3)
    others = [deal(3, seed=2), deal(3, step=3), deal(3, epoch=1)]
    assert all(first != other for other in others)


def candidates(prompts: int, guesses: int, prompt: int = 9) -> Batch:
    """Guesses of three tokens after prompts that have no token in common."""
    rows = [
        ([10 + i] * prompt + [3, 4, 5 + j], [0] * prompt + [1, 1, 1])
        for j in range(guesses)
        for i in range(prompts)
    ]
    return batch_of(rows, [1.0] * len(rows))


def count_distinct(batch: Batch, rows: np.ndarray) -> int:
    """Beginnings of some rows, each once, up to the token before the last trained one."""
    ends = [int(np.flatnonzero(batch.trained[row])[-1]) for row in rows]
    pairs = zip(batch.ids[rows].tolist(), ends, strict=True)
    return len({tuple(ids[: n + 1]) for ids, end in pairs for n in range(end)})


def test_guesses_of_one_state_stay_together_and_its_prompt_counts_once():
    batch = candidates(prompts=3, guesses=8)
    parts = split_distinct(batch, 9 + 2)
    assert sorted(row for part in parts for row in part) == list(range(24))
    assert [sorted(set(part % 3)) for part in parts] == [[0], [1], [2]]
    assert [count_distinct(batch, part) for part in parts] == [9 + 2] * 3


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("most", [1, 7, 20, 60, 1000])
def test_micro_batches_have_few_enough_distinct_beginnings(most, paired):
    random = np.random.default_rng(most)
    rows = []
    for _ in range(40):
        size = int(random.integers(2, 10))
        rows.append((random.integers(0, 2, size).tolist(), [0] + [1] * (size - 1)))
    batch = batch_of(rows, [1.0] * 40)
    if paired:
        batch = replace(batch, units=np.arange(40) // 2)
    parts = split_distinct(batch, most)
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    counts = [count_distinct(batch, part) for part in parts]
    for part, count in zip(parts, counts, strict=True):
        assert count <= most or len(part) == 1 + paired
        assert not paired or len(part) == 2 * len(set((part // 2).tolist())), "a unit is whole"
    if not paired:  # no part has room for the next row
        for n, (part, next_part) in enumerate(pairwise(parts)):
            assert count_distinct(batch, np.append(part, next_part[0])) > max(most, counts[n] - 1)


def small_policy() -> Policy:
    policy = policy_of(qwen(340), guessing_tokenizer())
    policy.keep_reference()
    return policy


@pytest.mark.parametrize("most", [1, 20, 40, 200])
def test_micro_batches_of_unequal_units_keep_to_the_limit(most):
    lengths = np.random.default_rng(0).integers(2, 13, 24)
    rows = [([3] * n, [0] + [1] * (n - 1)) for n in lengths.tolist()]
    batch = replace(batch_of(rows, [1.0] * 24), units=np.arange(24) // 2)
    parts = split_padded(batch, most)
    assert sorted(np.concatenate(parts).tolist()) == list(range(24))
    for part in parts:
        units = np.unique(batch.units[part])
        assert len(part) == 2 * len(units), "a unit is whole"
        area = len(part) * lengths[part].max()
        assert area <= most or len(units) == 1


def test_prompts_apart_and_together_give_the_same_gradient():
    policy, batch = small_policy(), candidates(prompts=3, guesses=8)
    signs = np.linspace(-1, 1, 24, dtype=np.float32)[:, None] * batch.trained
    batch = replace(batch, advantages=signs, sampler_logprobs=policy.score(batch))
    results = []
    for limit, parts in (9 + 2, 3), (1000, 1):
        policy.micro_batch_tokens, batches = limit, []
        policy.run_micro_batches(batch, batches.append)
        assert len(batches) == parts
        results.append(gradients(policy, batch, Grpo(beta=0.0)))
    grads, joint_grads = results
    assert max(float(grad.abs().max()) for grad in grads.values()) > 1e-3
    for name, grad in grads.items():
        torch.testing.assert_close(grad, joint_grads[name], atol=1e-6, rtol=1e-5)


def batches_of(algorithm: Any, monkeypatch: pytest.MonkeyPatch, **recipe: Any) -> list[Batch]:
    """What each update of one step got."""
    policy = small_policy()
    batches: list[Batch] = []
    update = policy.update

    def spy(batch: Batch, algorithm: Any) -> dict[str, float]:
        batches.append(batch)
        return update(batch, algorithm)

    monkeypatch.setattr(policy, "update", spy)
    setup = recipe_of(algorithm, lambda turn: float(turn.tokens), **recipe)
    train_step(step_of(policy, setup, 0))
    return batches


def test_old_logprobs_are_those_before_the_first_update(monkeypatch):  # rows 3 and 15
    first, *_, last = batches_of(Grpo(beta=0.0, epochs=3), monkeypatch)
    assert first.old_logprobs is not None and last.old_logprobs is not None
    assert np.array_equal(first.old_logprobs, last.old_logprobs)
    assert np.abs(first.old_logprobs - first.sampler_logprobs).max() < 1e-4
