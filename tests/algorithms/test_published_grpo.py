"""algorithm=grpo computes GRPO as its paper says (DeepSeekMath, arXiv 2402.03300, section 4).

The formulas are written out anew: plain Python for the advantages, plain autograd for the gradient.
"""

import copy
import statistics
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.helpers.configs import composed
from tests.helpers.tiny import (
    WORDS,
    AlwaysGuesses,
    full_forward,
    many_stops,
    plain_copy,
    qwen,
    qwen_like_tokenizer,
    step_of,
    weights_of,
)
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.training.step import StepResult, train_step

GROUPS, SIZE, RATE = 4, 4, 1e-3
BETA, CLIP = 0.04, 0.2  # section 4.2; PPO's range, as the paper gives none


@dataclass(frozen=True)
class Update:
    """A step of it on a small model, and the weights around it."""

    result: StepResult
    model: Any  # as it played
    reference: Any
    gradient: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def update() -> Update:
    """16 games of an untrained model, which has moved away from its reference."""
    given = ["experiment=none", "model=tiny", "algorithm=grpo", "rollout.credit=game"]
    given += ["rollout.form=conversation", "rollout.discount=1", "sampling.temperature=1"]
    given += [f"algorithm.beta={BETA}", f"rollout.groups={GROUPS}", f"num_generations={SIZE}"]
    given += ["optim=adamw", "optim.clip_grad_norm=0"]
    experiment = build_experiment(resolve(composed(*given)))
    policy = TorchPolicy(
        qwen(340),
        AlwaysGuesses(qwen_like_tokenizer(), extra_stop_ids=many_stops(340)),
        temperature=experiment.recipe.sampling.temperature,
        optim=experiment.optim,
    )
    policy.keep_reference()
    reference = plain_copy(policy.model)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        for parameter in policy.model.parameters():
            parameter.mul_(1 + 0.1 * torch.randn(parameter.shape, generator=generator))
    model, found = plain_copy(policy.model), {}

    def keep_gradient() -> None:
        for name, parameter in policy.model.named_parameters():
            assert parameter.grad is not None and name not in found, "the paper has one update"
            found[name] = parameter.grad.clone()

    policy.apply_gradients = [keep_gradient, *policy.apply_gradients]
    policy.set_learning_rate(RATE)
    recipe = replace(experiment.recipe, secrets=WORDS.answers)
    result = train_step(step_of(policy, recipe))
    return Update(result, model, reference, found, weights_of(policy.model))


def advantages_by_hand(result: StepResult) -> list[float]:
    """(r - mean(r)) / std(r) of each game in its group: section 4.1.2."""
    found = []
    for group in range(GROUPS):
        rewards = [
            reward.total
            for rollout, reward in zip(result.rollouts, result.rewards, strict=True)
            if rollout.group == group
        ]
        assert len(rewards) == SIZE
        spread, mean = statistics.stdev(rewards), statistics.mean(rewards)
        found += [(reward - mean) / spread if spread else 0.0 for reward in rewards]
    return found


def conversation_of(rollout: Rollout) -> tuple[list[int], torch.Tensor]:
    """The tokens of a game, and which of them the model wrote: the paper's output o."""
    [talk] = rollout.talks
    written = [any(t in part for part in talk.answers.values()) for t in range(len(talk.ids))]
    return talk.ids, torch.tensor(written)


def objective_by_hand(update: Update, policy: Any) -> torch.Tensor:
    """Eq. 3 with the divergence of eq. 4, for games that the policy of the moment played."""
    games = []
    for rollout, advantage in zip(
        update.result.rollouts, advantages_by_hand(update.result), strict=True
    ):
        ids, written = conversation_of(rollout)
        now = full_forward(policy, ids)[written]
        ref = full_forward(update.reference, ids)[written].detach()
        ratio = (now - now.detach()).exp()  # the policy that played is the one that is updated
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        divergence = (ref - now).exp() - (ref - now) - 1
        games.append((gain - BETA * divergence).sum() / len(now))
    return torch.stack(games).mean()


def test_its_advantages_are_those_of_the_paper(update):  # row 32
    expected = advantages_by_hand(update.result)
    assert len({len(rollout.game.turns) for rollout in update.result.rollouts}) > 2, "uneven games"
    assert sum(advantage != 0.0 for advantage in expected) >= 2 * SIZE
    for values, advantage in zip(update.result.advantages, expected, strict=True):
        assert values.tolist() == pytest.approx([advantage] * len(values), abs=1e-9)


def test_its_gradient_is_that_of_the_paper(update):  # row 32
    policy = copy.deepcopy(update.model)
    (-objective_by_hand(update, policy)).backward()
    expected = {name: parameter.grad for name, parameter in policy.named_parameters()}
    assert update.gradient.keys() == expected.keys()
    largest = max(float(slope.abs().max()) for slope in expected.values())
    gap = max(float((update.gradient[n] - expected[n]).abs().max()) for n in expected)
    assert largest > 1e-3 and gap < 2e-5 * largest
