"""Several processes that train one policy: the games, gradients and weights of a process alone.

Most tests put two threads in the place of two processes; the last ones start real ones.
"""

import copy
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.runs import assert_close_runs, assert_saved, resume, run, settings, stop
from tests.helpers.tiny import (
    WORDS,
    batch_of,
    guessing_tokenizer,
    policy_of,
    qwen,
    recipe_of,
    same,
    step_of,
    weights_of,
)
from wordle_rl.algorithms.adaptive_entropy import AdaptiveEntropy
from wordle_rl.algorithms.clip_cov import ClipCov
from wordle_rl.algorithms.dapo import Dapo
from wordle_rl.algorithms.dpo import Dpo
from wordle_rl.algorithms.expert_iteration import ExpertIteration
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.gspo import Gspo
from wordle_rl.algorithms.ppo import Ppo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.game.players import RandomWord
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.policy.policy import Policy
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.runs.processes import ALONE, share
from wordle_rl.training.step import StepResult, train_step

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]


class Meeting:
    """Where threads that play processes hand things to each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=120)
        self.values: list[Any] = [None] * size


class Member:
    """Implements wordle_rl.runs.processes.Processes for one thread of a meeting."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting

    def gather(self, value: Any) -> list[Any]:
        self._meeting.values[self.rank] = copy.deepcopy(value)
        self._meeting.barrier.wait()
        values = list(self._meeting.values)
        self._meeting.barrier.wait()
        return values

    def add_up(self, tensors: Any) -> None:
        parts = self.gather([tensor.clone() for tensor in tensors])
        for tensor, *terms in zip(tensors, *parts, strict=True):
            tensor.copy_(sum(terms))


def policy_for(processes: Any) -> Policy:
    """Weights follow the gradient itself: AdamW would blow up what rounding leaves of a zero."""
    policy = policy_of(qwen(340), guessing_tokenizer(), clip_grad_norm=0.1)
    policy.processes = processes
    policy.keep_reference()
    policy.machine.add_value_head()

    def descend() -> None:
        with torch.no_grad():
            for parameter in policy.machine.trainable:
                if parameter.grad is not None:  # as that of a value head that nobody asked
                    parameter.sub_(parameter.grad)

    policy.machine.apply_gradients = [descend]
    return policy


def run_together(size: int, work: Callable[[Policy], Any]) -> list[Any]:
    """What work returns in each of the processes, which start with equal policies."""
    if size == 1:
        return [work(policy_for(ALONE))]
    meeting = Meeting(size)
    # Made one after the other: torch's generator, which draws the weights, is shared by threads.
    policies = [policy_for(Member(rank, meeting)) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, policies))


def steps(
    policy: Policy, algorithm: Any, reward: Callable[[PlayedTurn], float], **recipe: Any
) -> list[StepResult]:
    """What a policy plays in three steps of six groups of up to three games."""
    setup = recipe_of(algorithm, reward, **{"groups": 6, **recipe})
    return [train_step(step_of(policy, setup, number)) for number in range(3)]


def odd_reward(turn: PlayedTurn) -> float:
    return float(turn.tokens % 2) + 0.1 * turn.state.turn


def games_of(result: StepResult) -> list[Any]:
    return [
        (r.group, r.game.secret, r.game.turns, [talk.ids for talk in r.talks])
        for r in result.rollouts
    ]


def assert_equal_steps(results: list[StepResult], expected: list[StepResult]) -> None:
    for result, target in zip(results, expected, strict=True):
        assert games_of(result) == games_of(target)
        for a, b in zip(result.advantages, target.advantages, strict=True):
            # Values and log-probabilities, if they enter, are float32, and rows are batched anew.
            assert np.allclose(a, b, rtol=1e-5, atol=1e-5)
        assert result.metrics.keys() == target.metrics.keys()
        for name, value in target.metrics.items():
            assert np.isclose(result.metrics[name], value, 1e-4, 1e-5, equal_nan=True), name


def assert_close_weights(policy: Policy, reference: Policy) -> None:
    weights, start = weights_of(policy.machine.model), weights_of(qwen(340))
    for name, weight in weights_of(reference.machine.model).items():
        assert (weight - start[name]).abs().max() > 1e-4, "it must learn"
        assert torch.allclose(weights[name], weight, rtol=1e-5, atol=1e-5), name


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "grpo": (Grpo(beta=0.1), {}),
    "credit by turn": (Grpo(beta=0.0), {"credit": "turn", "discount": 0.5}),
    "two epochs": (Grpo(beta=0.0, epochs=2), {}),
    "minibatches, entropy, kl in the reward": (
        Grpo(beta=0.2, kl="reward", entropy=0.1, epochs=2, minibatches=3),
        {"credit": "turn"},
    ),
    "dapo": (Dapo(resample=3), {"num_generations": 2}),
    "gspo": (Gspo(minibatches=2), {}),
    "ppo": (Ppo(epochs=2, minibatches=2), {"credit": "turn", "discount": 0.5}),
    "dpo": (Dpo(minibatches=2), {}),
    "expert iteration": (ExpertIteration(), {}),
    "best of, in fresh prompts": (
        Grpo(beta=0.0, minibatches=2),
        {"kind": "best_of", "form": "fresh"},
    ),
    "single turns, agreement": (Grpo(beta=0.0), {"kind": "turn", "agreement": True}),
    "two minibatches, agreement": (Grpo(beta=0.0, minibatches=2), {"agreement": True}),
    "clip_cov, best of": (ClipCov(cov_low=0.01, share=0.1, minibatches=2), {"kind": "best_of"}),
    "adaptive entropy": (AdaptiveEntropy(entropy=0.5, target=9.0), {}),
    "sft": (Sft(), {"teacher": TeacherSettings(player=RandomWord(WORDS)), "num_generations": 1}),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_play_and_learn_what_one_does(kind, size):  # rows 11 and 13
    algorithm, recipe = KINDS[kind]

    def work(policy: Policy) -> Any:
        return policy, steps(policy, algorithm, odd_reward, **recipe)

    [(reference, expected)] = run_together(1, work)
    for policy, results in run_together(size, work):
        for result in results:
            # row 11; with best_of a secret has a group for each turn
            assert len({(r.group % 6, r.game.secret) for r in result.rollouts}) == 6
            assert len({(r.group, r.game.turns[0].state) for r in result.rollouts}) == len(
                {r.group for r in result.rollouts}
            )
        assert_equal_steps(results, expected)
        assert_close_weights(policy, reference)


@pytest.mark.parametrize("size", [2, 3])
def test_a_process_whose_groups_teach_nothing_learns_from_the_others(size):  # row 13
    def rare_reward(turn: PlayedTurn) -> float:
        return float(turn.guess == "sleep" and turn.tokens % 2)

    def work(policy: Policy) -> Any:
        results = steps(policy, Grpo(beta=0.0), rare_reward, groups=size, num_generations=2)
        groups = share(size, policy.processes)
        taught = [
            any(
                advantages.any()
                for advantages, r in zip(result.advantages, result.rollouts, strict=True)
                if r.group in groups
            )
            for result in results
        ]
        return policy, results, taught

    [(reference, expected, _)] = run_together(1, work)
    outputs = run_together(size, work)
    assert not all(all(taught) for _, _, taught in outputs), "some groups must teach nothing"
    for policy, results, _ in outputs:
        assert_equal_steps(results, expected)
        assert_close_weights(policy, reference)


def test_all_processes_skip_an_update_that_is_not_finite_in_one():
    def work(policy: Policy) -> Any:
        batch = batch_of([([3, 9, 4], [0, 1, 1])], [float("nan") if policy.processes.rank else 1.0])
        return policy, policy.update(batch, Grpo(beta=0.0))

    for policy, metrics in run_together(2, work):
        assert metrics["update/skipped"] == 1.0
        assert same(weights_of(policy.machine.model), weights_of(qwen(340)))


# -- real processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [False, True])
def test_two_processes_over_gloo_train_what_one_does(stops, tmp_path):  # rows 11, 13 and 22
    args = settings(tmp_path, "grpo with a reference")
    (root := tmp_path / "runs").mkdir()
    _, expected = run(root, *args)
    launch = partial(run, root, *args, "backend.devices=2")
    if stops:
        stop(Policy, "update", 3, signal.SIGINT, launch)
        [folder] = set(root.iterdir()) - {expected}
        assert_saved(folder, 3)
        resume(folder)
    else:
        _, folder = launch()
    assert_close_runs(folder, expected)
