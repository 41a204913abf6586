"""A whole training step of every algorithm and option, computed anew from its games and rewards.

What feeds each update is compared, its loss, and its gradient by the weights before it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sweeps.credit.parts import TurnSums
from tests.helpers.backends import BACKENDS
from tests.helpers.configs import OPTIONS
from tests.helpers.tiny import WORDS
from tests.training.step_oracle import Oracle
from tests.training.whole_step import play
from wordle_rl.algorithms.adaptive_entropy import AdaptiveEntropy
from wordle_rl.algorithms.cispo import Cispo
from wordle_rl.algorithms.clip_cov import ClipCov
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.distill import Distill
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.expert_iteration import ExpertIteration
from wordle_rl.algorithms.gdpo import Gdpo
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.max_rl import MaxRl
from wordle_rl.algorithms.opd import Opd
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
CHOICES = replace(LESSON, distribution=True)
WORDS_ONLY = {"grammar": "words", "knowledge": KNOWLEDGE}
CLUES = {"grammar": "clues", "knowledge": KNOWLEDGE}
BY_TURN = {"credit": "turn", "discount": 0.5}
# Each algorithm under both credits. Together they have every setting that reaches a step.
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "grpo by game, kl in the loss": (Grpo(beta=0.3, minibatches=2), {}),
    "grpo by turn, kl in the reward": (
        Grpo(beta=0.4, kl="reward", epochs=2),
        {**BY_TURN, "history": HISTORY},
    ),
    "grpo by turn and letter": (
        Grpo(beta=0.0, epochs=2),
        {**BY_TURN, "letter_weight": 0.5, "knowledge": KNOWLEDGE},
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
    "gdpo by game": (Gdpo(), {}),
    "gdpo by turn, entropy": (Gdpo(epochs=2, entropy=0.1), BY_TURN),
    "max_rl by game": (MaxRl(minibatches=2), {}),
    "max_rl by turn, lag, kl in the reward": (
        MaxRl(beta=0.2, importance_cap=1.5, epochs=2),
        {**BY_TURN, "lag": True},
    ),
    "turn_sums by turn": (TurnSums(beta=0.0), {"credit": "turn", "discount": 1.0}),
    "cispo by game": (Cispo(epochs=3, clip_high=0.05), {}),
    "cispo by turn, importance, lag": (
        Cispo(minibatches=2, clip_high=0.1, importance_cap=1.5),
        {**BY_TURN, "lag": True},
    ),
    "clip_cov by game": (ClipCov(epochs=2, cov_low=0.1, share=0.05), {}),
    "clip_cov by turn and letter": (
        ClipCov(minibatches=2, cov_low=0.1, share=0.05),
        {**BY_TURN, "letter_weight": 0.5, "knowledge": KNOWLEDGE},
    ),
    "adaptive_entropy by game": (AdaptiveEntropy(entropy=0.5, target=9.0, beta=0.0), {}),
    "adaptive_entropy by turn, above its target": (
        AdaptiveEntropy(entropy=0.5, target=0.1, epochs=2),
        BY_TURN,
    ),
    "opd by game": (Opd(reference="other"), {"other": True}),
    "opd by turn, rewards, lag": (
        Opd(reference="other", reward_weight=0.7, beta=0.1, importance_cap=1.5, epochs=2),
        {**BY_TURN, "other": True, "lag": True},
    ),
    "dpo by game, another model": (Dpo(reference="other"), {"other": True}),
    "grpo by turn, lag": (Grpo(beta=0.2, importance_cap=1.2, epochs=2), {**BY_TURN, "lag": True}),
    "ppo by turn, lag": (
        Ppo(epochs=2, minibatches=1, beta=0.1, kl="reward", importance_cap=1.2),
        {**BY_TURN, "lag": True},
    ),
    "grpo by turn, semantic, clues": (
        Grpo(beta=0.2, semantic=0.4, entropy=0.1, epochs=2),
        {**BY_TURN, **CLUES},
    ),
    "gspo by game, semantic, words": (
        Gspo(semantic=0.3, clip_high=0.1, clip_low=0.1, epochs=2),
        {**WORDS_ONLY, "form": "fresh"},
    ),
    "ppo by turn, semantic, clues": (
        Ppo(epochs=1, minibatches=2, semantic=0.3, beta=0.1, kl="reward"),
        {**BY_TURN, **CLUES},
    ),
    "dr_grpo by turn and letter, clues": (
        DrGrpo(budget=24),
        {**BY_TURN, **CLUES, "letter_weight": 0.5},
    ),
    "distill by game": (Distill(), {"teacher": CHOICES}),
    "distill by game, half the games its own": (
        Distill(on_policy=0.5),
        {**WORDS_ONLY, "teacher": replace(CHOICES, guessable=WORDS.allowed, own_share=0.5)},
    ),
}
# Those of which each reads something else of a backend than log-probabilities.
ON_MLX = (
    "dpo by turn",
    "gspo by turn",
    "opd by turn, rewards, lag",
    "cispo by game",
    "clip_cov by game",
    "adaptive_entropy by game",
    "ppo by turn, lag",
    "ppo by turn, semantic, clues",
    "grpo by turn, semantic, clues",
    "distill by game, half the games its own",
)

# Cases of a loss that some test must meet.
LOSS_CASES = {
    "grpo by turn and letter": {"a letter counts"},
    "gspo by game": {"several sequences", "above", "below"},
    "rloo by game, importance": {"importance below 1", "importance capped"},
    "ppo by game": {"value held"},
    "cispo by game": {"above"},
    "clip_cov by game": {"some of them"},
    "clip_cov by turn and letter": {"some of them", "a letter counts"},
    "ppo by turn, lag": {"importance below 1", "importance capped"},
    "ppo by turn, semantic, clues": {"a forced answer"},
    "distill by game, half the games its own": {"astray"},
}
# Algorithms whose every rollout teaches something.
ALL_TEACH = ("ppo", "sft", "distill")


def test_every_algorithm_of_conf_is_here() -> None:
    gaps = {*OPTIONS["algorithm"]} - {case.split()[0] for case in CASES}
    assert not gaps


@pytest.mark.parametrize(
    ("name", "case"), [*(("torch", case) for case in CASES), *(("mlx", case) for case in ON_MLX)]
)
def test_a_step_does_what_its_games_and_rewards_ask_for(name: str, case: str) -> None:
    # rows 14 and 15
    outcome = play(BACKENDS[name](), *CASES[case])
    oracle, result = Oracle(outcome), outcome.result
    for values, advantages in zip(oracle.found.per_turn, result.advantages, strict=True):
        np.testing.assert_allclose(advantages, values, atol=1e-4)
    updates = list(oracle.updates())
    assert len(updates) == len(outcome.batches) == result.metrics["update/count"]
    for rows, batch in zip(updates, outcome.batches, strict=True):
        assert len(rows) == len(batch.ids)
        for i, (_, fields) in enumerate(rows):
            for key, expected in fields.items():
                actual = getattr(batch, key)[i, batch.drawn[i]]
                np.testing.assert_allclose(actual, expected, atol=1e-4, err_msg=key)
    for n, rows in enumerate(updates):
        loss = oracle.loss(outcome.moments[n], rows)
        assert outcome.metrics[n]["loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-5)
        assert_same_gradient(outcome.gradients[n], loss, outcome.moments[n].weights)
        for key, expected in oracle.means().items():
            assert outcome.metrics[n][f"policy/{key}"] == pytest.approx(expected, 1e-5, 1e-5), key
    assert oracle.met >= LOSS_CASES.get(case, set())
    assert_groups_are_counted(oracle, result)
    for key in {"policy/ratio_gap", "policy/largest_sampler_gap"} & {*result.metrics}:  # row 3
        gaps = [m[key] for m in outcome.metrics]
        assert result.metrics[key] == max(gaps)
        assert len(gaps) == 1 or max(gaps) > min(gaps)
    parts = {n: m for n, m in result.metrics.items() if n.startswith("reward/")}
    spread, mean = parts.pop("reward/std"), parts.pop("reward/mean")
    for name in ("min", "max", "below_0"):
        parts.pop(f"reward/{name}")
    assert sum(parts.values()) == pytest.approx(mean) and spread > 0  # row 20
    charged = oracle.name in ALL_TEACH or "kl in the reward" in case or "punished" in case
    if not (charged or oracle.letters):
        assert not oracle.teaches.all(), "some rollout must teach nothing"
    if case == "dapo by turn, filtered":
        assert result.metrics["groups/resampled"] > 0 < result.metrics["groups/skipped"]


@pytest.mark.parametrize("kind", [Grpo, Gspo, Dapo, Opd, Ppo])
def test_a_semantic_loss_of_hardly_any_weight_changes_nothing_else(kind: Any) -> None:
    """Tokens that the grammar forced are scored for it, and count nowhere else."""
    fields = {**BY_TURN, **CLUES, "form": "fresh", "letter_weight": 0.5}
    settings = {"beta": 0.1, "kl": "loss", "entropy": 0.1, "epochs": 1, "minibatches": 1}
    base, variant = (
        play(BACKENDS["torch"](), kind(semantic=semantic, **settings), fields)
        for semantic in (0.0, 1e-9)
    )
    for grads_a, grads_b in zip(base.gradients, variant.gradients, strict=True):
        a, b = (torch.cat([g[n].flatten() for n in grads_a]) for g in (grads_a, grads_b))
        assert (a - b).norm() < 5e-6 * a.norm()
    assert {*variant.result.metrics} - {*base.result.metrics} == {"policy/semantic"}
    for name, value in base.result.metrics.items():
        assert variant.result.metrics[name] == pytest.approx(value, 1e-5, 1e-5), name


def assert_same_gradient(
    gradient: dict[str, torch.Tensor], loss: torch.Tensor, weights: dict[str, torch.Tensor]
) -> None:
    slopes = torch.autograd.grad(loss, [*weights.values()], allow_unused=True)
    size = torch.cat([slope.flatten() for slope in slopes if slope is not None]).norm()
    gaps = [
        gradient.get(name, torch.zeros(1)).flatten() - (0.0 if slope is None else slope.flatten())
        for name, slope in zip(weights, slopes, strict=True)
    ]
    assert size > 1e-3 and torch.cat(gaps).norm() < 1e-4 * size


def assert_groups_are_counted(oracle: Oracle, result: StepResult) -> None:
    num_idle = sum(
        not oracle.teaches[oracle.groups == group].any() for group in np.unique(oracle.groups)
    )
    num_new = result.metrics["groups/resampled"]
    totals = RunState().count(result.metrics)
    assert totals["total/skipped_groups"] == (num_idle if oracle.leaves_out else 0)
    assert totals["total/zero_spread_groups"] == num_idle + num_new
    assert totals["total/groups"] == len(np.unique(oracle.groups)) + num_new
