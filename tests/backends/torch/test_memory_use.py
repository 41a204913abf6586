"""Training with less memory: layers and logits computed again, and smaller micro-batches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.families import build
from tests.helpers.tiny import SHAPE, batch_of, gemma, gradients, lora_of, policy_of, qwen, same
from tests.helpers.updates import PLAIN
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.policy import token_outputs
from wordle_rl.policy.batch import Batch, DoesNotFit, TokenTargets
from wordle_rl.policy.policy import Policy

LENGTHS = (12, 12, 9, 7, 5, 4, 3, 2)
VOCAB = 340  # of the model in model_folder


def eight_rows() -> Batch:
    """Eight rows, of which all tokens but the first are trained."""
    random = np.random.default_rng(3)
    rows = [(random.integers(0, 64, n).tolist(), [0] + [1] * (n - 1)) for n in LENGTHS]
    weights = random.uniform(0.1, 1, len(rows)).tolist()
    return batch_of(rows, random.normal(size=len(rows)).tolist(), weights=weights)


def assert_near(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    assert scale > 0
    assert all((actual[name] - g).abs().max() < 1e-5 * scale for name, g in expected.items())


# -- layers computed again ------------------------------------------------------------------------

BUILDS: dict[str, Callable[[str], Any]] = {
    "written out": lambda _: qwen(VOCAB),
    "gemma3": lambda _: gemma(VOCAB),
    "plain": lambda _: build("mistral"),
    "lora": lora_of,
}


def count_saved_bytes(policy: Policy, batch: Batch) -> int:
    """Memory of the tensors that a forward pass keeps for the backward pass, weights aside."""
    weights = {p.untyped_storage().data_ptr() for p in policy.machine.model.parameters()}
    tensors: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:  # the tensor is kept, so that no address comes twice
            tensors[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        policy.machine.lm.compute_loss(batch, PLAIN, temperature=1.0)
    return sum(size for size, _ in tensors.values())


@pytest.mark.parametrize("name", BUILDS)
def test_layers_computed_again_give_the_same_gradient_from_less_memory(name, model_folder):
    batch, build = eight_rows(), BUILDS[name]
    policy, lean_policy = (
        policy_of(build(model_folder), gradient_checkpointing=flag) for flag in (False, True)
    )
    expected = gradients(policy, batch, PLAIN)
    assert max(float(g.abs().max()) for g in expected.values()) > 0
    assert same(gradients(lean_policy, batch, PLAIN), expected)  # bit for bit
    assert np.array_equal(lean_policy.score(batch), policy.score(batch))
    # What is left are the layers' inputs and what comes after the layers.
    assert 0 < count_saved_bytes(lean_policy, batch) < 0.4 * count_saved_bytes(policy, batch)


# -- logits in parts ------------------------------------------------------------------------------


class LargestLogits(TorchDispatchMode):
    """Keeps the size in bytes of the largest tensor with a column for each token.

    Weights and their gradients, which have a row for each hidden number, do not count.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.bytes = self.count = 0
        self._weights = {p.untyped_storage().data_ptr() for p in policy.machine.model.parameters()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.ndim and tensor.shape[-1] == VOCAB:
                storage = tensor.untyped_storage()
                gradient = tuple(tensor.shape) == (SHAPE["hidden_size"], VOCAB)
                if storage.data_ptr() not in self._weights and not gradient:
                    self.count += 1
                    self.bytes = max(self.bytes, storage.nbytes())
        return result


def with_targets(batch: Batch) -> Batch:
    """The batch, of which each trained place has two possible tokens."""
    targets = []
    for row in range(len(batch.ids)):
        places = np.flatnonzero(batch.trained[row])
        probabilities = np.tile([0.75, 0.25], len(places)).astype(np.float32)
        ids = np.stack([batch.ids[row, places], batch.ids[row, places] + 1], axis=1).ravel()
        targets.append(TokenTargets(places=places.repeat(2), ids=ids, probabilities=probabilities))
    return replace(batch, distributions=targets)


@pytest.mark.parametrize("rows", [1, 5])  # at once; 46 are trained
@pytest.mark.parametrize("name", ["lora", "written out"])
@pytest.mark.parametrize("algorithm", [Grpo(beta=0.0, entropy=0.1), Sft()], ids=["grpo", "sft"])
def test_the_logits_of_a_whole_batch_never_exist(algorithm, name, rows, model_folder, monkeypatch):
    batch = eight_rows()
    if isinstance(algorithm, Sft):
        batch = with_targets(batch)
    limit = 4 * VOCAB * rows
    results = []
    for budget in (2**28, limit):
        monkeypatch.setattr(token_outputs, "LOGITS_BYTES", budget)
        policy = policy_of(BUILDS[name](model_folder))
        with LargestLogits(policy) as probe:
            scores = policy.score(batch)
            gradient = gradients(policy, batch, algorithm)
        assert probe.count > 0
        results.append((scores, gradient, probe.bytes))
    (scores, gradient, whole), (scores_in_parts, gradient_in_parts, part) = results
    assert part <= limit < whole
    assert np.abs(scores - scores_in_parts).max() < 1e-5
    assert_near(gradient_in_parts, gradient)


# -- out of memory --------------------------------------------------------------------------------


def fail_backward(policy: Policy, index: int, error: Exception, *, after: bool) -> list[int]:
    """Let a backward pass run out of memory before or after its gradients. Returns its calls."""
    calls: list[int] = []
    method = policy.machine.backward

    def backward(loss: torch.Tensor) -> None:
        calls.append(len(calls))
        if calls[-1] != index:
            return method(loss)
        if after:  # the worst that can happen: all gradients are there, and nobody knows
            method(loss)
        raise error

    policy.machine.backward = backward
    return calls


CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
CPU = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("error", "after"), [(CUDA, True), (CPU, False), (MemoryError(), False)])
def test_no_sample_is_lost_when_memory_runs_out_in_the_middle(error, after, precision, capsys):
    batch = eight_rows()  # in two micro-batches
    policy, small_policy = (
        policy_of(qwen(), micro_batch_tokens=n, precision=precision) for n in (36, 18)
    )
    calls = fail_backward(policy, 1, error, after=after)
    metrics: list[dict[str, float]] = []
    update = policy.update
    policy.update = lambda *args: metrics.append(update(*args)) or metrics[-1]
    grads = gradients(policy, batch, PLAIN)
    assert same(grads, gradients(small_policy, batch, PLAIN))  # bit for bit
    assert metrics[0]["update/halved"] == 1.0 and metrics[0]["update/skipped"] == 0.0
    expected = small_policy.update(batch, PLAIN)
    same_names = [n for n in expected if n != "update/halved"]
    assert {n: metrics[0][n] for n in same_names} == {n: expected[n] for n in same_names}
    [line] = capsys.readouterr().out.splitlines()
    assert "out of memory with 3 x 12 tokens" in line and "micro_batch_tokens=18" in line
    # The rest of the run keeps to the smaller size.
    count = len(calls)
    assert policy.update(batch, PLAIN)["update/halved"] == 0.0
    assert len(calls) - count == count - 2
    assert capsys.readouterr().out == ""


def test_scores_are_complete_when_memory_runs_out():
    batch, policy = eight_rows(), policy_of(qwen(), micro_batch_tokens=36)
    expected = policy.score(batch)
    forward, calls = policy.machine.lm.forward, []

    def compute(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise CUDA
        return forward(*args, **kwargs)

    policy.machine.lm.forward = compute
    assert np.abs(policy.score(batch) - expected).max() < 1e-6
    assert len(calls) > 3
    assert policy.update(batch, PLAIN)["update/halved"] == 1.0


@pytest.mark.parametrize("units", [None, np.zeros(8, np.int64)], ids=["one row", "a unit"])
def test_what_cannot_be_split_must_fit(units):
    policy = policy_of(qwen(), micro_batch_tokens=1)
    fail_backward(policy, 0, CUDA, after=False)
    with pytest.raises(DoesNotFit) as error:
        policy.update(replace(eight_rows(), units=units), PLAIN)
    text = "1 sequences of up to 2" if units is None else "8 sequences of up to 12"
    assert str(error.value).startswith(f"out of memory: {text} tokens must fit")
    assert "backend.gradient_checkpointing=true" in str(error.value)
