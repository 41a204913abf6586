"""Precision and threads are chosen by the machine, recorded, and kept when a run resumes."""

import json

import numpy as np
import pytest
import torch

from tests.helpers.runs import resume, run, settings
from wordle_rl.backends.torch import devices as torch_devices
from wordle_rl.backends.torch.devices import choose_computing, choose_precision
from wordle_rl.backends.torch.optimizers import orthogonalize
from wordle_rl.policy.settings import LightningSettings


@pytest.mark.parametrize(
    ("allowed", "units", "chosen"),
    [("AVX512", True, "bf16"), ("AVX512", False, "fp32"), ("AVX2", True, "fp32")],
)
def test_a_processor_computes_in_bf16_if_it_has_units_that_torch_may_use(
    allowed, units, chosen, monkeypatch
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: allowed)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: units)
    assert choose_precision(torch.device("cpu"))[0] == chosen


@pytest.mark.parametrize(
    ("cores", "busy", "threads"), [(2, 3, 2), (2, 50, 1), (2, 100, 1), (8, 26, 6)]
)
def test_a_run_takes_the_idle_cores(cores, busy, threads, monkeypatch):
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: busy)
    monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
    try:
        computing = choose_computing(LightningSettings(precision="fp32"), torch.device("cpu"))
    finally:
        torch.set_num_threads(1)
    assert computing.threads == threads and not torch.backends.cuda.cudnn_sdp_enabled()
    assert bool(computing.reasons) == (threads < cores)


@pytest.fixture
def small(tmp_path) -> list[str]:
    """A run whose precision is chosen by itself."""
    args = settings(tmp_path, "grpo with a reference")
    overrides = ["trainer.steps=1", "trainer.report=false", "algorithm.beta=0"]
    return [s for s in args if "precision" not in s] + overrides


def say(monkeypatch, precision: str) -> None:
    choice = precision, f"{precision}: as the test says"
    monkeypatch.setattr(torch_devices, "choose_precision", lambda device: choice)


def test_what_was_chosen_is_told_recorded_and_kept_by_a_resumed_run(
    small, tmp_path, monkeypatch, capsys
):
    root = tmp_path / "runs"
    root.mkdir()
    say(monkeypatch, "bf16")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    _, folder = run(root, *small, "backend.threads=auto")
    assert "bf16: as the test says\n" in capsys.readouterr().out
    computing = json.loads((folder / "manifest.json").read_text())["computing"]
    reasons = ["bf16: as the test says"]
    assert computing == {"precision": "bf16", "threads": 1, "reasons": reasons, "gpu": None}
    say(monkeypatch, "fp32")  # as on another machine
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    resume(folder, "trainer.steps=2")
    text = capsys.readouterr().out
    assert "precision bf16, as before; backend.precision=auto chooses again\n" in text
    assert "threads 1, as before; backend.threads=auto chooses again" in text
    resume(folder, "trainer.steps=3", "backend.precision=auto")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["computing"] == computing
    parts = [part["computing"] for part in manifest["resumes"]]
    assert [part["precision"] for part in parts] == ["bf16", "fp32"]
    assert [part["reasons"] for part in parts] == [[], ["fp32: as the test says"]]
    assert parts[0]["threads"] == 1


# -- Muon -----------------------------------------------------------------------------------------

NEWTON_SCHULZ = {"ns_coefficients": (3.4445, -4.7750, 2.0315), "ns_steps": 5, "eps": 1e-7}


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_the_orthogonal_direction_has_the_polynomial_of_the_singular_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, values, vh = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    values = values / np.sqrt((values**2).sum())
    a, b, c = NEWTON_SCHULZ["ns_coefficients"]
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    np.testing.assert_allclose(
        orthogonalize(matrix, NEWTON_SCHULZ).numpy(), u @ np.diag(values) @ vh, atol=2e-5
    )
