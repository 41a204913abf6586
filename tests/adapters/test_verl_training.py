"""Real steps of verl's main_ppo by examples/verl/train.sh, on the CPU.

verl is unpatched. What it needs to run without a GPU is in tests/helpers/verl/. `make verl` runs
this in an environment of its own, on one and on two Ray nodes of this machine.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wordle_rl.__main__ import run as wordle_rl
from wordle_rl.game.rules import GameStatus
from wordle_rl.policy.settings import locate
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(800),
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None, reason="verl is not installed: make verl"
    ),
]

STEPS, GROUPS, SIZE = 2, 4, 4
SETTINGS = (
    *("model=tiny", "reward=phase2", "optim=adamw", "optim.lr=1e-5", "optim.warmup_steps=1"),
    *(f"trainer.steps={STEPS}", f"rollout.groups={GROUPS}", f"num_generations={SIZE}"),
    *("words.val=6", "words.test=6", "backend.precision=fp32", "logger=none"),
    *(f"trainer.checkpoint_every={STEPS}", f"trainer.validate_every={STEPS}"),
)


@dataclass(frozen=True)
class Run:
    """A finished run of verl."""

    nodes: int
    folder: Path  # the files of wordle_rl.verl, and the checkpoints
    log: Path  # what was drawn and trained
    rows: list[dict[str, Any]]  # what was trained
    printed: str

    def metric(self, name: str) -> list[float]:
        """A metric of each step, as verl printed it."""
        found = re.findall(rf"{re.escape(name)}:([-\d.e]+)", self.printed)
        return [float(value) for value in found]


@pytest.fixture(scope="module", params=[1, 2], ids=["one node", "two nodes"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.helpers.verl.cluster import ray_nodes, run_script
    from tests.helpers.verl.recorded import read_lines

    folder, log = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("log")
    wordle_rl(["verl", *SETTINGS, f"output={folder}"])
    with ray_nodes(request.param, log) as env:
        env["NNODES"] = str(request.param)
        games = f"trainer.validation_data_dir={log}/validation"
        done = run_script(folder, env, games, limit=600)
    (log / "printed.txt").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = read_lines(log, "trained.jsonl")
    return Run(nodes=request.param, folder=folder, log=log, rows=rows, printed=done.stdout)


def test_every_step_trains_whole_groups_of_training_games(run):
    assert len(run.rows) == STEPS * GROUPS * SIZE
    for step in (1, 2):
        uids = [row["uid"] for row in run.rows if row["step"] == step]
        assert sorted(map(uids.count, set(uids))) == [SIZE] * GROUPS
    assert {row["split"] for row in run.rows} == {"train"}


def test_the_trained_tokens_are_the_drawn_ones_and_no_others(run):
    from tests.helpers.verl.recorded import answers_of, list_drawn

    drawn = list_drawn(run.log)
    assert drawn.total() > len(run.rows)
    assert Counter(answer for row in run.rows for answer in answers_of(row)) == drawn


def test_rewards_are_those_of_our_reward_set_and_a_won_game_ends(run):
    from transformers import AutoTokenizer

    from tests.helpers.verl.recorded import replay

    tokenizer = AutoTokenizer.from_pretrained(locate("embedded/tiny"))
    won = 0
    for row in run.rows:
        game, reward = replay(row, tokenizer, "phase2")  # raises for guesses after the end
        assert game.status is not GameStatus.PLAYING
        assert sum(row["rm_scores"]) == pytest.approx(reward.total, abs=1e-4)
        assert not any(row["rm_scores"][:-1])
        for name, share in reward.components.items():
            assert row["parts"][f"reward_{name}"] == pytest.approx(share)
        assert row["parts"]["acc"] == game.won
        won += game.won
    assert 0 < won < len(run.rows)


def test_sampler_and_trainer_agree_before_and_after_an_update(run):
    from tests.helpers.verl.recorded import largest_gap

    for step in (1, 2):
        rows = [row for row in run.rows if row["step"] == step]
        gap = largest_gap(rows)
        print(f"{run.nodes} nodes, step {step}: largest gap {gap:.1e}")
        assert gap < 1e-5
    assert all(gap < 1e-5 for gap in run.metric("training/rollout_probs_diff_max"))
    norms = run.metric("actor/grad_norm")
    assert len(set(norms)) == STEPS and min(norms) > 0


def test_validation_plays_every_secret_once_before_and_after(run):
    from tests.helpers.verl.recorded import read_lines

    secrets = split_secrets(load_words(), val=6, test=6).val
    for step in (0, STEPS):
        games = read_lines(run.log, f"validation/{step}.jsonl")
        assert sorted(game["gts"] for game in games) == sorted(secrets)
        for game in games:
            shares = [value for key, value in game.items() if key.startswith("reward_")]
            assert game["score"] == pytest.approx(sum(shares), abs=1e-4)
    assert "val-core/wordle/acc/mean@1" in run.printed


def test_each_node_writes_its_part_of_a_checkpoint(run):
    parts = sorted(path.name for path in run.folder.rglob("model_world_size_*.pt"))
    assert parts == [f"model_world_size_{run.nodes}_rank_{i}.pt" for i in range(run.nodes)]
