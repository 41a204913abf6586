"""Minibatches: whole groups, a pure function of seed, step and epoch, weighed each on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.tiny import (
    AlwaysGuesses,
    batch_of,
    many_stops,
    policy_of,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    step_of,
)
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.policy.batch import Batch, minibatches, split_micro_batches, take
from wordle_rl.training.step import train_step

GROUPS = np.repeat([5, 1, 8, 3, 2, 7, 4], 3)


def dealt(count: int, **place: int) -> list[list[int]]:
    parts = minibatches(GROUPS, count, **{"seed": 1, "step": 2, "epoch": 0, **place})
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_sequence_is_in_one_minibatch_and_no_group_is_split(count):  # row 11
    parts = dealt(count)
    assert sorted(i for part in parts for i in part) == list(range(len(GROUPS)))
    for one in parts:
        for other in parts:
            assert one is other or not set(GROUPS[one]) & set(GROUPS[other])
    sizes = [len(set(GROUPS[part])) for part in parts]
    assert len(parts) == count and max(sizes) - min(sizes) <= 1


def test_the_deal_depends_on_seed_step_and_epoch_alone():
    first = dealt(3)
    assert first == dealt(3)
    others = [dealt(3, seed=2), dealt(3, step=3), dealt(3, epoch=1)]
    assert all(first != other for other in others)


def test_a_minibatch_holds_its_rows_and_their_weights():
    rows = [([3, 9, 4, 8], [0, 1, 0, 1]), ([3, 5], [0, 1]), ([3, 6, 7], [0, 1, 1])]
    part = take(batch_of(rows, [1.0, 2.0, 3.0]), np.array([1, 2]), np.array([0.25, 0.5]))
    assert part.ids.tolist() == [[3, 5, 0], [3, 6, 7]]
    assert part.lengths.tolist() == [2, 3]
    assert part.advantages.tolist() == [[0.0, 2.0, 0.0], [0.0, 3.0, 3.0]]
    assert part.weights.tolist() == [[0.0, 0.25, 0.0], [0.0, 0.5, 0.5]]
    assert take(part, np.array([], int), np.array([])).ids.shape == (0, 0)


def small_policy() -> TorchPolicy:
    tokenizer = AlwaysGuesses(qwen_like_tokenizer(), extra_stop_ids=many_stops(340))
    policy = policy_of(qwen(340), tokenizer)
    policy.keep_reference()
    return policy


def batches_of(algorithm: Any, monkeypatch: pytest.MonkeyPatch, **recipe: Any) -> list[Batch]:
    """What each update of one step got."""
    policy = small_policy()
    seen: list[Batch] = []
    real = policy.update

    def spy(batch: Batch, algorithm: Any) -> dict[str, float]:
        seen.append(batch)
        return real(batch, algorithm)

    monkeypatch.setattr(policy, "update", spy)
    setup = recipe_of(algorithm, lambda turn: float(turn.tokens), **recipe)
    train_step(step_of(policy, setup, 0))
    return seen


def test_the_weights_of_each_minibatch_are_those_of_a_whole_step(monkeypatch):
    seen = batches_of(Grpo(entropy=0.1, epochs=2, minibatches=3), monkeypatch, groups=6, seed=2)
    assert len(seen) == 6
    for batch in seen:
        assert len(batch.lengths) == 6 and batch.old_logprobs is not None
        assert batch.weights.sum() == pytest.approx(1.0, rel=1e-6)
    of_epoch = [
        {frozenset(tuple(row[:n]) for row, n in zip(b.ids, b.lengths, strict=True)) for b in half}
        for half in (seen[:3], seen[3:])
    ]
    assert of_epoch[0] != of_epoch[1], "the second epoch deals anew"
    assert set.union(*map(set, of_epoch[0])) == set.union(*map(set, of_epoch[1]))


def test_a_pair_is_in_one_minibatch_and_in_one_piece(monkeypatch):
    for batch in batches_of(Dpo(minibatches=2), monkeypatch, groups=6):
        assert batch.units is not None
        numbers, counts = np.unique(batch.units, return_counts=True)
        assert len(numbers) > 0 and (counts == 2).all()
        for rows in split_micro_batches(batch, 1):
            assert len(rows) == 2 and len(set(batch.units[rows])) == 1


def test_old_logprobs_are_those_before_the_first_update(monkeypatch):  # rows 3 and 15
    first, *_, last = batches_of(Grpo(beta=0.0, epochs=3), monkeypatch)
    assert first.old_logprobs is not None and last.old_logprobs is not None
    assert np.array_equal(first.old_logprobs, last.old_logprobs)
    assert np.abs(first.old_logprobs - first.sampler_logprobs).max() < 1e-4
