"""Precision and threads are chosen by timing, recorded, and kept when a run resumes."""

import json

import numpy as np
import pytest
import torch

from tests.helpers.runs import resume, run, settings
from wordle_rl.backends.torch import devices as torch_devices
from wordle_rl.backends.torch.optimizers import orthogonalize
from wordle_rl.policy.computing import choose_precision, choose_threads


@pytest.mark.parametrize(("speedup", "chosen"), [(1.3, "bf16"), (1.2, "fp32"), (0.1, "fp32")])
def test_bf16_is_taken_where_it_is_at_least_1_3_times_as_fast(speedup, chosen):
    sentence = f"{chosen}: bf16 is {speedup} times as fast as fp32 on this processor"
    assert choose_precision({"fp32": speedup, "bf16": 1.0}) == (chosen, sentence)


@pytest.mark.parametrize(("two", "count"), [(0.05, 2), (0.105, 2), (0.4, 1)])
def test_one_thread_is_used_where_two_are_slower_and_noise_changes_nothing(two, count):
    found, told = choose_threads({1: 0.1, 2: two})
    assert found == count and (told is None) == (count == 2)
    if told:
        assert told.startswith("1 thread: 2 take 4.0 times as long")


@pytest.fixture
def small(tmp_path) -> list[str]:
    """A run whose precision is chosen by itself."""
    given = settings(tmp_path, "grpo with a reference")
    short = ["trainer.steps=1", "trainer.report=false", "algorithm.beta=0"]
    return [s for s in given if "precision" not in s] + short


def say(monkeypatch, precision: str) -> None:
    def found(seconds):
        return precision, f"{precision}: as the test says"

    monkeypatch.setattr(torch_devices, "choose_precision", found)


def test_what_was_chosen_is_told_recorded_and_kept_by_a_resumed_run(
    small, tmp_path, monkeypatch, capsys
):
    root = tmp_path / "runs"
    root.mkdir()
    say(monkeypatch, "bf16")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    _, folder = run(root, *small, "backend.threads=auto")
    assert "bf16: as the test says\n" in capsys.readouterr().out
    recorded = json.loads((folder / "manifest.json").read_text())["computing"]
    reasons = ["bf16: as the test says"]
    assert recorded == {"precision": "bf16", "threads": 1, "reasons": reasons}
    say(monkeypatch, "fp32")  # as on another machine
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    resume(folder, "trainer.steps=2")
    told = capsys.readouterr().out
    assert "precision bf16, as before; backend.precision=auto chooses again\n" in told
    assert "threads 1, as before; backend.threads=auto chooses again" in told
    resume(folder, "trainer.steps=3", "backend.precision=auto")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["computing"] == recorded
    parts = [part["computing"] for part in manifest["resumes"]]
    assert [part["precision"] for part in parts] == ["bf16", "fp32"]
    assert [part["reasons"] for part in parts] == [[], ["fp32: as the test says"]]
    assert parts[0]["threads"] == 1


# -- Muon -----------------------------------------------------------------------------------------

NEWTON_SCHULZ = {"ns_coefficients": (3.4445, -4.7750, 2.0315), "ns_steps": 5, "eps": 1e-7}


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_the_orthogonal_direction_has_the_polynomial_of_the_singular_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, values, right = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    values = values / np.sqrt((values**2).sum())
    a, b, c = NEWTON_SCHULZ["ns_coefficients"]
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    np.testing.assert_allclose(
        orthogonalize(matrix, NEWTON_SCHULZ).numpy(), left @ np.diag(values) @ right, atol=2e-5
    )
