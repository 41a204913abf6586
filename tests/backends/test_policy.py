"""What every policy does: scores, ratios, references and metrics, on each backend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers.tiny import batch_of, full_logprobs, gemma, lora_of, plain_copy, qwen, same
from tests.helpers.updates import PLAIN, ROWS, games, one_row, trained, whole
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.engine import NotFinite
from wordle_rl.training.update import update_in_minibatches


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_scores_are_those_of_the_sampling_temperature(temperature, backend):  # row 4
    model = qwen()
    plain = plain_copy(model)
    ids, marks = ROWS[0]
    scores = backend.policy_of(model, temperature=temperature).score(one_row(ids, marks))[0]
    expected = full_logprobs(plain, ids, temperature=temperature) * np.array(marks)
    assert np.abs(scores - expected).max() < 1e-5
    if temperature != 1.0:
        assert np.abs(scores - full_logprobs(plain, ids) * np.array(marks)).max() > 0.1


@pytest.mark.parametrize("place", [3, 4, 7, 9])
def test_changing_any_sampled_token_changes_the_loss(place, backend):  # row 5: 3 is the very first
    ids, marks = ROWS[0]
    changed = [*ids[:place], 45, *ids[place + 1 :]]
    losses = [
        backend.policy_of(qwen()).update(one_row(i, marks), Sft())["loss"] for i in (ids, changed)
    ]
    assert abs(losses[0] - losses[1]) > 1e-3
    scores = [backend.policy_of(qwen()).score(one_row(i, marks))[0] for i in (ids, changed)]
    assert scores[0][place] != scores[1][place]
    assert np.array_equal(scores[0][:place], scores[1][:place])


@pytest.mark.parametrize("build", [qwen, lambda: gemma(window=8)])
def test_changing_the_prompt_changes_the_scores_of_the_answer(build, backend):  # row 6
    ids, marks = ROWS[0]
    other = [44, *ids[1:]]
    first, second = (backend.policy_of(build()).score(one_row(i, marks))[0] for i in (ids, other))
    assert (np.abs(first - second)[np.array(marks, bool)] > 1e-4).all()


def test_metrics_are_means_over_the_sampled_tokens(backend):
    scores = backend.policy_of(qwen()).score(games())
    sampler = [(scores[i, : len(ids)] + 0.25).tolist() for i, (ids, _) in enumerate(ROWS)]
    batch = batch_of(ROWS, [0.7, -1.3, 0.4], sampler=sampler)
    batch = replace(batch, sampler_logprobs=np.where(batch.trained, batch.sampler_logprobs, 0))
    metrics = backend.policy_of(qwen(), micro_batch_tokens=1).update(batch, PLAIN)
    assert metrics["policy/sampler_gap"] == pytest.approx(0.25, abs=1e-5)
    first = batch.trained.cumsum().reshape(batch.trained.shape) == 1  # in the first micro-batch
    far = np.where(first & batch.trained, batch.sampler_logprobs - 1.0, batch.sampler_logprobs)
    far = backend.policy_of(qwen(), micro_batch_tokens=1).update(
        replace(batch, sampler_logprobs=far.astype(np.float32)), PLAIN
    )
    assert metrics["policy/largest_sampler_gap"] == pytest.approx(0.25, abs=1e-5)
    assert far["policy/largest_sampler_gap"] == pytest.approx(0.75, abs=1e-5)
    assert metrics["policy/surprise"] == pytest.approx(-scores[batch.trained].mean(), rel=1e-5)
    assert metrics["policy/ratio"] == pytest.approx(1.0)
    assert metrics["policy/clipped"] == 0.0


def ratios(policy: Any, algorithm: Grpo, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The largest distance of a token's ratio from 1 in each update on one batch."""
    seen: list[float] = []
    real = policy.update

    def spy(batch: Batch, algorithm: Any) -> dict[str, float]:
        metrics = real(batch, algorithm)
        seen.append(metrics["policy/ratio_gap"])
        return metrics

    monkeypatch.setattr(policy, "update", spy)
    update_in_minibatches(policy, algorithm, games(), whole)
    return seen


@pytest.mark.parametrize("micro_batch_tokens", [1, 1000])
@pytest.mark.parametrize("updates", [1, 3])
def test_the_ratio_is_one_on_the_first_update_and_moves_after_it(
    updates, micro_batch_tokens, monkeypatch, backend
):  # row 3
    policy = backend.policy_of(gemma(), temperature=0.7, micro_batch_tokens=micro_batch_tokens)
    first, *later = ratios(policy, Grpo(beta=0.0, epochs=updates), monkeypatch)
    assert first < 1e-5
    assert len(later) == updates - 1 and all(gap > 1e-3 for gap in later)


def test_at_learning_rate_zero_the_ratio_stays_one_and_nothing_moves(monkeypatch, backend):  # row 3
    policy = backend.policy_of(qwen(), lr=0.0)
    before = backend.weights_of(policy)
    gaps = ratios(policy, Grpo(beta=0.0, epochs=4), monkeypatch)
    assert len(gaps) == 4 and max(gaps) < 1e-5
    assert same(before, backend.weights_of(policy))


def test_an_adapter_taken_from_disk_is_not_the_raw_base(model_folder, adapter, backend):  # row 17
    raw, start = backend.policy_of(lora_of(model_folder)), backend.policy_of(lora_of(adapter))
    assert np.abs(raw.score(games()) - start.score(games())).max() > 1e-3


def test_loading_a_checkpoint_leaves_the_reference_as_it_was(model_folder, tmp_path, backend):
    for i, policy in enumerate(
        (backend.policy_of(lora_of(model_folder)), backend.policy_of(qwen(340)))
    ):
        policy.keep_reference()
        start = policy.score(games())
        trained(policy)
        policy.save(tmp_path / str(i))
        policy.load(tmp_path / str(i))
        assert np.array_equal(policy.score(games(), reference=True), start)
        assert not np.array_equal(policy.score(games()), start)


def test_weights_that_are_no_numbers_are_not_saved(backend, tmp_path):
    policy = backend.policy_of(qwen())
    policy.set_learning_rate(np.inf)
    policy.update(games(), Sft())
    with pytest.raises(NotFinite):
        policy.save(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_micro_batch_that_numpy_has_no_memory_for_is_halved(backend):
    def work(rows: Any) -> int:
        if len(rows) > 1:
            raise MemoryError
        return int(rows[0])

    policy = backend.policy_of(qwen(), micro_batch_tokens=1000)
    assert sorted(policy.run_micro_batches(games(), work)) == [*range(len(ROWS))]
