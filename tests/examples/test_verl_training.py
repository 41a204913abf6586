"""Real steps of verl's main_ppo by examples/verl/train.sh, on the CPU.

verl is unpatched. What it needs to run without a GPU is in tests/examples/verl/. `make verl` runs
this in an environment of its own, on one and on two Ray nodes of this machine.
"""

import importlib.util
import json
import re
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None, reason="verl is not installed: make verl"
    ),
]

STEPS = 2
SETTINGS = (
    *("model=tiny", "reward=phase2", "optim=adamw", "optim.lr=1e-5", "optim.warmup_steps=1"),
    *(f"trainer.steps={STEPS}", "rollout.groups=4", "num_generations=4"),
    *("words.val=6", "words.test=6", "backend.precision=fp32", "logger=none"),
    *(f"trainer.checkpoint_every={STEPS}", f"trainer.validate_every={STEPS}"),
)


@dataclass(frozen=True)
class Run:
    """A finished run of verl."""

    nodes: int
    folder: Path  # the files of examples/verl, and the checkpoints
    log: Path  # the games of each validation
    printed: str

    def metric(self, name: str) -> list[float]:
        """A metric of each step, as verl printed it."""
        values = re.findall(rf"{re.escape(name)}:([-\d.e]+)", self.printed)
        return [float(value) for value in values]


@pytest.fixture(scope="module", params=[1, 2], ids=["one node", "two nodes"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.examples.verl.cluster import ray_nodes, run_script

    folder, log = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("log")
    write_files = runpy.run_path(str(ROOT / "examples/verl/write_files.py"))
    write_files["main"]([*SETTINGS, f"output={folder}"])
    with ray_nodes(request.param, log) as env:
        env["NNODES"] = str(request.param)
        result = run_script(folder, env, f"trainer.validation_data_dir={log}", limit=1800)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return Run(nodes=request.param, folder=folder, log=log, printed=result.stdout)


def test_sampler_and_trainer_agree_before_and_after_an_update(run):
    gaps, norms = run.metric("training/rollout_probs_diff_max"), run.metric("actor/grad_norm")
    assert gaps and max(gaps) < 1e-5
    assert len(set(norms)) == STEPS and min(norms) > 0  # Ray may print a line twice


def test_validation_plays_every_secret_once_before_and_after(run):
    secrets = split_secrets(load_words(), val=6, test=6).val
    for step in (0, STEPS):
        lines = (run.log / f"{step}.jsonl").read_text().splitlines()
        games = [json.loads(line) for line in lines]
        assert sorted(game["gts"] for game in games) == sorted(secrets)
        for game in games:
            shares = [value for key, value in game.items() if key.startswith("reward_")]
            assert game["score"] == pytest.approx(sum(shares), abs=1e-4)
    assert "val-core/wordle/acc/mean@1" in run.printed


def test_each_node_writes_its_part_of_a_checkpoint(run):
    parts = sorted(path.name for path in run.folder.rglob("model_world_size_*.pt"))
    assert parts == [f"model_world_size_{run.nodes}_rank_{i}.pt" for i in range(run.nodes)]
