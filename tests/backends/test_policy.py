"""What every policy does: scores, ratios, references and metrics, on each backend."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.backends import Backend
from tests.helpers.tiny import (
    batch_of,
    full_logprobs,
    gemma,
    llama,
    lora_of,
    plain_copy,
    qwen,
    qwen_like_tokenizer,
    same,
)
from tests.helpers.updates import PLAIN, ROWS, games, one_row, play_bandit, trained, whole
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.ppo import Ppo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.backends.tiny_model import build_model
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.engine import NotFinite
from wordle_rl.training.update import update_in_minibatches


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_scores_are_those_of_the_sampling_temperature(temperature, backend):  # row 4
    model = qwen()
    hf_model = plain_copy(model)
    ids, marks = ROWS[0]
    scores = backend.policy_of(model, temperature=temperature).score(one_row(ids, marks))[0]
    expected = full_logprobs(hf_model, ids, temperature=temperature) * np.array(marks)
    assert np.abs(scores - expected).max() < 1e-5
    if temperature != 1.0:
        assert np.abs(scores - full_logprobs(hf_model, ids) * np.array(marks)).max() > 0.1


@pytest.mark.parametrize("build", [qwen, llama, gemma])
@pytest.mark.parametrize("micro_batch_tokens", [1, 1000])
def test_a_padded_batch_is_scored_as_its_rows_one_by_one(build, micro_batch_tokens, backend):
    model = build()  # row 9
    hf_model = plain_copy(model)
    scores = backend.policy_of(model, micro_batch_tokens=micro_batch_tokens).score(games())
    assert scores.dtype == np.float32
    for row, (ids, marks) in enumerate(ROWS):
        expected = full_logprobs(hf_model, ids) * np.array(marks)
        assert np.abs(scores[row, : len(ids)] - expected).max() < 3e-5
        assert (scores[row, len(ids) :] == 0).all()


@pytest.mark.parametrize("place", [3, 4, 7, 9])
def test_changing_any_sampled_token_changes_the_loss(place, backend):  # row 5: 3 is the very first
    ids, marks = ROWS[0]
    edit = [*ids[:place], 45, *ids[place + 1 :]]
    losses = [
        backend.policy_of(qwen()).update(one_row(i, marks), Sft())["loss"] for i in (ids, edit)
    ]
    assert abs(losses[0] - losses[1]) > 1e-3
    scores = [backend.policy_of(qwen()).score(one_row(i, marks))[0] for i in (ids, edit)]
    assert scores[0][place] != scores[1][place]
    assert np.array_equal(scores[0][:place], scores[1][:place])


@pytest.mark.parametrize("build", [qwen, lambda: gemma(window=8)])
def test_changing_the_prompt_changes_the_scores_of_the_answer(build, backend):  # row 6
    ids, marks = ROWS[0]
    edit = [44, *ids[1:]]
    first, second = (backend.policy_of(build()).score(one_row(i, marks))[0] for i in (ids, edit))
    assert (np.abs(first - second)[np.array(marks, bool)] > 1e-4).all()


def row_gradient(model: Any, ids: list[int], marks: list[int]) -> np.ndarray:
    """The gradient of the mean log-probability of a row's sampled tokens, by transformers."""
    model.zero_grad()
    logprobs = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    values = logprobs.gather(-1, torch.tensor(ids)[1:, None])[:, 0]
    (values * torch.tensor(marks[1:])).sum().backward()
    return np.concatenate([p.grad.numpy().ravel() for p in model.parameters()]).astype(float)


@pytest.mark.parametrize("micro_batch_tokens", [1, 1000])
@pytest.mark.parametrize("second", [[1], [0, 2]])
def test_agreement_is_the_cosine_of_the_gradients_of_two_halves(
    micro_batch_tokens, second, backend
):
    model = qwen()
    hf_model = plain_copy(model)
    advantages = [0.7, -1.3, 0.4]
    gradients = [a * row_gradient(hf_model, *row) for a, row in zip(advantages, ROWS, strict=True)]
    halves = np.isin(np.arange(3), second)
    sums = [
        sum(g for g, half in zip(gradients, halves, strict=True) if half is side)
        for side in (np.False_, np.True_)
    ]
    cosine = sums[0] @ sums[1] / np.linalg.norm(sums[0]) / np.linalg.norm(sums[1])
    policy = backend.policy_of(model, micro_batch_tokens=micro_batch_tokens)
    metrics = policy.update(replace(games(), halves=halves), PLAIN)
    assert metrics["update/agreement"] == pytest.approx(cosine, abs=1e-4)
    assert abs(cosine) > 0.01
    same_step = backend.policy_of(qwen()).update(games(), PLAIN)
    assert metrics["grad_norm"] == pytest.approx(same_step["grad_norm"], rel=1e-4)


def test_halves_of_which_one_is_empty_have_no_agreement(backend):
    halves = np.zeros(3, bool)
    for batch in replace(games(), halves=halves), replace(games(), halves=~halves):
        assert math.isnan(backend.policy_of(qwen()).update(batch, PLAIN)["update/agreement"])
    assert "update/agreement" not in backend.policy_of(qwen()).update(games(), PLAIN)


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
    gaps: list[float] = []
    update = policy.update

    def spy(batch: Batch, algorithm: Any) -> dict[str, float]:
        metrics = update(batch, algorithm)
        gaps.append(metrics["policy/ratio_gap"])
        return metrics

    monkeypatch.setattr(policy, "update", spy)
    update_in_minibatches(policy, algorithm, games(), whole)
    return gaps


@pytest.mark.parametrize("micro_batch_tokens", [1, 1000])
@pytest.mark.parametrize("updates", [1, 3])
def test_the_ratio_is_one_on_the_first_update_and_moves_after_it(
    updates, micro_batch_tokens, monkeypatch, backend
):  # row 3
    policy = backend.policy_of(gemma(), temperature=0.7, micro_batch_tokens=micro_batch_tokens)
    first, *rest = ratios(policy, Grpo(beta=0.0, epochs=updates), monkeypatch)
    assert first < 1e-5
    assert len(rest) == updates - 1 and all(gap > 1e-3 for gap in rest)


def test_at_learning_rate_zero_the_ratio_stays_one_and_nothing_moves(monkeypatch, backend):  # row 3
    policy = backend.policy_of(qwen(), lr=0.0)
    before = backend.weights_of(policy)
    gaps = ratios(policy, Grpo(beta=0.0, epochs=4), monkeypatch)
    assert len(gaps) == 4 and max(gaps) < 1e-5
    assert same(before, backend.weights_of(policy))


def policy_of_kind(kind: str, folder: str, backend: Backend, seed: int = 0, **fields: Any) -> Any:
    """A fully trained model, or an adapter on the model in a folder; or in a precision."""
    if backend.name == "mlx" and kind == "fp16":
        pytest.skip("MLX has no fp16")
    model = lora_of(folder, seed=seed) if kind == "lora" else qwen(340, seed=seed)
    precision = {"precision": kind} if kind in ("bf16", "fp16") else {}
    return backend.policy_of(model, **precision, **fields)


@pytest.mark.parametrize("kind", ["full", "bf16", "lora", "trained adapter"])
def test_the_reference_is_the_policy_at_the_start_and_stays_it(
    kind, model_folder, adapter, backend
):  # row 17
    if kind == "trained adapter":
        policy = backend.policy_of(lora_of(adapter, dropout=0.5))
    else:
        policy = policy_of_kind(kind, model_folder, backend)
    policy.keep_reference()
    start = policy.score(games())
    ref = policy.score(games(), reference=True)
    assert np.array_equal(ref, start)
    metrics = policy.update(replace(games(), ref_logprobs=ref), Grpo(beta=0.1))
    assert metrics["policy/kl"] == 0.0
    trained(policy)
    assert np.array_equal(policy.score(games(), reference=True), start)
    assert np.abs(policy.score(games()) - start).max() > 1e-3


@pytest.mark.parametrize("kind", ["full", "lora", "bf16", "fp16"])
def test_a_two_armed_bandit_is_won_in_95_of_100_games(kind, tmp_path, backend):  # row 23
    # Embeddings this long let a small hidden state prefer the even half of 340 tokens; LoRA
    # leaves the embeddings as they are.
    model = qwen(340, factor=20.0)
    if kind == "lora":
        model.save_pretrained(tmp_path)
        qwen_like_tokenizer().save_pretrained(tmp_path)
        model = lora_of(str(tmp_path))
    if backend.name == "mlx" and kind == "fp16":
        pytest.skip("MLX has no fp16")
    precision = {"precision": kind} if kind[-2:] == "16" else {}
    policy = backend.policy_of(model, lr=2e-2, **precision)

    def wins() -> float:
        return float(np.exp(policy.engine().next_logprobs([[7, 9]]))[0, ::2].sum())

    assert 0.2 < wins() < 0.8
    for step in range(40):
        if (batch := play_bandit(policy, step)) is not None:
            policy.update(batch, PLAIN)
    assert wins() >= 0.95


@pytest.mark.parametrize("kind", ["full", "lora", "bf16", "fp16"])
@pytest.mark.parametrize("fault", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_skipped_as_if_it_had_never_been(
    kind, fault, model_folder, backend
):
    policies = [
        trained(policy_of_kind(kind, model_folder, backend, clip_grad_norm=1.0), 1)
        for _ in range(2)
    ]
    before = backend.weights_of(policies[0])
    assert policies[0].update(games((fault, 0.0, 0.0)), PLAIN)["update/skipped"] == 1.0
    assert same(before, backend.weights_of(policies[0]))
    # Moments and gradients are as they were, too.
    assert same(*(backend.weights_of(trained(policy, 1)) for policy in policies))


@pytest.mark.parametrize("kind", ["full", "bf16", "fp16", "lora", "muon", "value head"])
def test_a_checkpoint_restores_weights_and_moments_bit_for_bit(
    kind, model_folder, tmp_path, backend
):  # row 22
    name = "muon" if kind == "muon" else "adamw"
    source, target = (
        policy_of_kind(kind, model_folder, backend, seed, name=name) for seed in (0, 1)
    )
    batch, algorithm = games(), PLAIN
    if kind == "value head":
        targets = np.random.default_rng(0).normal(size=(2, 3, 1)).astype(np.float32)
        values, returns = targets * batch.trained
        batch = replace(batch, old_values=values, targets=returns, target_scale=1.7)
        algorithm = Ppo()
        for policy in (source, target):
            policy.machine.add_value_head()
    for _ in range(3):
        source.update(batch, algorithm)
    source.save(tmp_path)
    target.load(tmp_path)
    for step in range(3):
        assert same(backend.weights_of(source), backend.weights_of(target)), step
        assert np.array_equal(source.score(games()), target.score(games()))
        for policy in (source, target):
            assert policy.update(batch, algorithm)["update/skipped"] == 0.0


@pytest.mark.parametrize(
    "case", ["width", "layers", "rank", "adapter into full", "full into adapter", "optimizer"]
)
def test_the_checkpoint_of_another_model_is_refused_and_changes_nothing(
    case, model_folder, tmp_path, backend
):
    shape = {"hidden_size": 64, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64}
    deep_shape = {**shape, "hidden_size": 32, "layers": 3}
    model = {
        "width": lambda: build_model(vocab_size=340, **shape),
        "layers": lambda: build_model(vocab_size=340, **deep_shape),
        "rank": lambda: lora_of(model_folder, rank=2),
        "adapter into full": lambda: lora_of(model_folder),
    }.get(case, lambda: qwen(340))()
    into_adapter = case in ("rank", "full into adapter")
    dest = backend.policy_of(lora_of(model_folder) if into_adapter else qwen(340))
    name = "muon" if case == "optimizer" else "adamw"
    trained(backend.policy_of(model, name=name), 1).save(tmp_path)
    before = backend.weights_of(dest)
    pattern = r".*choose optim=" if case == "optimizer" else "/model"
    with pytest.raises(ValueError, match=str(tmp_path) + pattern):
        dest.load(tmp_path)
    # On torch the weights are read before the moments.
    assert same(before, backend.weights_of(dest)) or (case, backend.name) == ("optimizer", "torch")


def test_an_adapter_taken_from_disk_is_not_the_raw_base(model_folder, adapter, backend):  # row 17
    base, start = backend.policy_of(lora_of(model_folder)), backend.policy_of(lora_of(adapter))
    assert np.abs(base.score(games()) - start.score(games())).max() > 1e-3


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


@pytest.mark.parametrize("scale", [1.0, 1e38])
def test_neither_broken_weights_nor_weights_whose_predictions_overflow_are_saved(
    scale, backend, tmp_path
):
    model = qwen(340)
    model.model.norm.weight.data *= scale
    policy = backend.policy_of(model)
    if scale == 1.0:
        policy.machine.set_learning_rate(np.inf)
        policy.update(games(), Sft())
    with pytest.raises(NotFinite, match="weights" if scale == 1.0 else "predictions"):
        policy.save(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_micro_batch_that_numpy_has_no_memory_for_is_halved(backend):
    def work(part: Batch) -> int:
        if len(part.ids) > 1:
            raise MemoryError
        return int(part.lengths[0])

    policy, batch = backend.policy_of(qwen(), micro_batch_tokens=1000), games()
    lengths = {rows[0]: length for rows, length in policy.run_micro_batches(batch, work)}
    assert lengths == dict(enumerate(batch.lengths))
