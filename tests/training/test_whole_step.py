"""A whole training step of every algorithm, computed a second time from its games and rewards.

What feeds each update is compared, its loss, and its gradient by the weights before it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.tiny import WORDS
from tests.training.step_oracle import Oracle
from tests.training.whole_step import play
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.expert_iteration import ExpertIteration
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.ppo import Ppo
from wordle_rl.algorithms.rloo import Rloo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Mistakes, RandomConsistent
from wordle_rl.rollouts.history import History
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.training.checkpoint import RunState
from wordle_rl.training.step import StepResult

KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))
PLAYER = RandomConsistent(KNOWLEDGE)
HISTORY = History(least=0, most=1, player=PLAYER, stand_in=PLAYER)
LESSON = TeacherSettings(player=PLAYER, mistakes=Mistakes(KNOWLEDGE), slips=0.3)
BY_TURN = {"credit": "turn", "discount": 0.5}
# Each algorithm under both credits. Together they have every setting that reaches a step.
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "grpo by game, kl in the loss": (Grpo(beta=0.3, minibatches=2), {}),
    "grpo by turn, kl in the reward": (
        Grpo(beta=0.4, kl="reward", epochs=2), {**BY_TURN, "history": HISTORY},
    ),
    "grpo by turn and letter": (
        Grpo(beta=0.0, epochs=2), {**BY_TURN, "letter_weight": 0.5, "knowledge": KNOWLEDGE},
    ),
    "dr_grpo by game, two minibatches": (DrGrpo(budget=24, minibatches=2), {"form": "fresh"}),
    "dr_grpo by turn, entropy": (DrGrpo(budget=24, entropy=0.2), BY_TURN),
    "dapo by game, punished": (Dapo(resample=1, epochs=2), {}),
    "dapo by turn, filtered": (
        Dapo(overlong="filter", resample=1, minibatches=2),
        {**BY_TURN, "unpaid": ("sleep", "slate")},
    ),
    "gspo by game": (Gspo(epochs=2, clip_high=0.1, clip_low=0.1), {"form": "fresh"}),
    "gspo by turn": (Gspo(minibatches=2, clip_high=0.1, clip_low=0.1), BY_TURN),
    "rloo by game, importance": (Rloo(importance_cap=1.05, epochs=2), {"history": HISTORY}),
    "rloo by turn, importance and kl": (Rloo(importance_cap=1.05, beta=0.2), BY_TURN),
    "ppo by game": (Ppo(epochs=2, minibatches=1, entropy=0.1), {}),
    "ppo by turn": (Ppo(epochs=1, minibatches=3), {**BY_TURN, "form": "fresh"}),
    "dpo by game": (Dpo(epochs=2), {}),
    "dpo by turn": (Dpo(), {**BY_TURN, "form": "fresh"}),
    "expert_iteration by game": (ExpertIteration(), {}),
    "expert_iteration by turn": (ExpertIteration(minibatches=2), BY_TURN),
    "sft by game": (Sft(), {"teacher": replace(LESSON, slips=0.0)}),
    "sft by turn": (Sft(minibatches=2), {**BY_TURN, "teacher": LESSON}),
}  # fmt: skip

# Cases of a loss that some test must meet.
NEEDED = {
    "grpo by turn and letter": {"a letter counts"},
    "gspo by game": {"several sequences", "above", "below"},
    "rloo by game, importance": {"importance below 1", "importance capped"},
    "ppo by game": {"value held"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_does_what_its_games_and_rewards_ask_for(case: str) -> None:  # rows 14 and 15
    played = play(*CASES[case])
    oracle, result = Oracle(played), played.result
    for ours, theirs in zip(oracle.found.per_turn, result.advantages, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4)
    asked = list(oracle.updates())
    assert len(asked) == len(played.batches) == result.metrics["update/count"]
    for rows, batch in zip(asked, played.batches, strict=True):
        assert len(rows) == len(batch.ids)
        for i, (_, fed) in enumerate(rows):
            for name, expected in fed.items():
                found = getattr(batch, name)[i, batch.trained[i]]
                np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=name)
    for n, rows in enumerate(asked):
        loss = oracle.loss(played.moments[n], rows)
        assert played.metrics[n]["loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-5)
        assert_same_gradient(played.gradients[n], loss, played.moments[n].weights)
        if oracle.clipped:
            share = torch.cat(oracle.clipped).mean().item()
            assert played.metrics[n]["policy/clipped"] == pytest.approx(share)
    assert oracle.met >= NEEDED.get(case, set())
    assert_groups_are_counted(oracle, result)
    for name in {"policy/ratio_gap", "policy/largest_sampler_gap"} & {*result.metrics}:  # row 3
        each = [m[name] for m in played.metrics]
        assert result.metrics[name] == max(each)
        assert len(each) == 1 or max(each) > min(each)
    logged = {n: m for n, m in result.metrics.items() if n.startswith("reward/")}
    spread, mean = logged.pop("reward/std"), logged.pop("reward/mean")
    for name in ("min", "max", "below_0"):
        logged.pop(f"reward/{name}")
    assert sum(logged.values()) == pytest.approx(mean) and spread > 0  # row 20
    charged = oracle.name == "ppo" or "kl in the reward" in case or "punished" in case
    if not (charged or oracle.letters or oracle.name == "sft"):
        assert not oracle.teaches.all(), "some rollout must teach nothing"
    if case == "dapo by turn, filtered":
        assert result.metrics["groups/resampled"] > 0 < result.metrics["groups/skipped"]


def assert_same_gradient(
    found: list[torch.Tensor], loss: torch.Tensor, weights: list[torch.Tensor]
) -> None:
    expected = torch.autograd.grad(loss, weights)
    size = torch.cat([slope.flatten() for slope in expected]).norm()
    gaps = torch.cat([(a - b).flatten() for a, b in zip(found, expected, strict=True)])
    assert size > 1e-3 and gaps.norm() < 1e-4 * size


def assert_groups_are_counted(oracle: Oracle, result: StepResult) -> None:
    idle = sum(
        not oracle.teaches[oracle.groups == group].any() for group in np.unique(oracle.groups)
    )
    replaced = result.metrics["groups/resampled"]
    totals = RunState().count(result.metrics)
    assert totals["total/skipped_groups"] == (idle if oracle.leaves_out else 0)
    assert totals["total/zero_spread_groups"] == idle + replaced
    assert totals["total/groups"] == len(np.unique(oracle.groups)) + replaced
