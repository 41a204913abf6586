"""Training runs on MLX: the same folder, stop and resume as on Lightning, and the same numbers."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.helpers import runs
from tests.helpers.commands import error_of
from tests.helpers.configs import composed
from tests.helpers.runs import assert_equal_runs, assert_saved, files, metrics_of, resume, run, stop
from wordle_rl.commands.eval import evaluate
from wordle_rl.commands.train import train
from wordle_rl.policy.policy import Policy
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.validation import HeldOutPlay, RunReports

TORCH_ONLY = {"backend.accelerator=cpu", "backend.threads=1"}


def settings(folder: Path, stage: str) -> list[str]:
    args = [s for s in runs.settings(folder, stage) if s not in TORCH_ONLY]
    return ["backend=mlx", *args]


STOPS = {  # by stage: moment, its call in this process, whole steps that must have been saved
    "grpo with a reference": [((HeldOutPlay, "validate"), 1, 0), ((Policy, "update"), 2, 2)],
    "two updates with muon": [((CheckpointStore, "save"), 1, 0), ((Policy, "update"), 2, 1)],
    "lora": [((RunReports, "report"), 1, 0), ((Policy, "update"), 2, 2)],
    "ppo": [((Policy, "update"), 6, 2)],  # four updates a step
    "ppo behind by one, in phases": [((Policy, "update"), 6, 2)],
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STOPS)
def test_stopped_at_any_moment_a_run_equals_one_that_never_stopped(stage, tmp_path, root, capfd):
    # row 22
    args = [*settings(tmp_path, stage), "trainer.steps=4"]
    _, full_run = run(root, *args)
    assert [m["step"] for m in metrics_of(full_run)] == list(range(5))
    assert sum(m.get("grad_norm", 0.0) > 0.0 for m in metrics_of(full_run)) == 4, "it must learn"
    folder: list[Path] = []
    for moment, call, steps in STOPS[stage]:
        start = partial(resume, *folder) if folder else partial(run, root, *args)
        stop(*moment, call, 15, start)
        folder[:] = set(root.iterdir()) - {full_run}
        assert_saved(*folder, steps)
    resume(*folder)
    assert_equal_runs(*folder, full_run)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same run on either backend."""
    path = tmp_path_factory.mktemp("both")
    (path / "runs").mkdir()
    args = [*runs.settings(path, "grpo with a reference"), "optim.lr=1e-3", "trainer.steps=3"]
    args += ["sampling.temperature=0.7"]
    mlx_args = ["backend=mlx", *(s for s in args if s not in TORCH_ONLY)]
    return {n: run(path / "runs", *g)[1] for n, g in (("lightning", args), ("mlx", mlx_args))}


@pytest.mark.slow
def test_a_run_plays_and_learns_the_same_as_on_lightning(both):
    names = [{f for f in files(folder) if "checkpoints/" not in f} for folder in both.values()]
    assert names[0] == names[1]
    games = [(folder / "games.jsonl").read_text().splitlines() for folder in both.values()]
    assert len(games[0]) == len(games[1]) > 0
    # A draw may fall between two roundings; then games differ from that step on.
    secrets = [[json.loads(line)["secret"] for line in lines] for lines in games]
    assert secrets[0] == secrets[1]
    rows = [metrics_of(folder)[1] for folder in both.values()]
    for name in ("reward/mean", "loss", "grad_norm", "tokens/sampled", "policy/surprise"):
        assert rows[1][name] == pytest.approx(rows[0][name], rel=1e-3, abs=1e-5), name


@pytest.mark.slow
def test_a_fully_trained_run_is_evaluated_on_either_backend(both, tmp_path):
    wins = []
    for overrides in ([], ["backend=lightning"]):
        args = [f"run={both['mlx']}", "compare=false", f"output_dir={tmp_path}", *overrides]
        args += ["backend.precision=fp32"]
        wins.append(evaluate(composed(*args, name="eval"), args)["wins"])
    summary = json.loads((both["mlx"] / "summary.json").read_text())
    assert wins == [summary["wins"]] * 2


def test_an_adapter_of_mlx_is_named_where_lightning_meets_it(tmp_path, root, capsys):
    args = settings(tmp_path, "lora")
    _, folder = run(root, *args, "trainer.steps=1")
    adapter = folder / "model"
    assert (adapter / "adapters.safetensors").is_file()
    torch_args = [*runs.settings(tmp_path, "lora"), f"model.path={adapter}", f"output_dir={root}"]
    with pytest.raises(SystemExit) as end:
        train(composed(*torch_args), torch_args)
    error = error_of(capsys.readouterr().err)
    assert end.value.code == 2 and "wordle-rl export" in error and "backend=mlx" in error


@pytest.mark.slow
def test_without_mlx_everything_else_runs_and_the_backend_ends_in_one_line(tmp_path):
    argv = ["train.py", "backend=mlx", f"output_dir={tmp_path}"]
    code = (
        "import sys; sys.modules['mlx'] = None; sys.modules['mlx_lm'] = None\n"
        f"sys.argv = {argv}; exec(open('train.py').read())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert result.returncode == 2, result.stderr
    assert "is not installed: " in error_of(result.stderr)


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch brings another BLAS")
def test_a_run_on_linux_multiplies_with_the_blas_of_torch():
    code = (
        "from types import SimpleNamespace; from wordle_rl.commands.train import load_backend\n"
        "mx = load_backend(SimpleNamespace(name='mlx', module='mlx.core'))  # no more than that\n"
        "a = mx.arange(12.0).reshape(3, 4); print((a @ a.T)[1].tolist())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "MKL_VERBOSE": "1"},
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    assert "SGEMM(" in result.stdout and "[38.0, 126.0, 214.0]" in result.stdout
