"""Rollouts played in portions are the rollouts played all at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.helpers.engine_spy import Spy
from tests.helpers.tiny import (
    AlwaysGuesses,
    many_stops,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    same,
    step_of,
)
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.best_of import BestOf
from wordle_rl.rollouts.game import WholeGame
from wordle_rl.rollouts.turn import OneTurn
from wordle_rl.training.step import StepResult, train_step

GROUPS, SIZE = 5, 3  # 15 games


def odd(turn: PlayedTurn) -> float:
    return float(turn.tokens % 2) + 0.1 * turn.state.turn + 0.01 * turn.tokens


def learn(
    backend: Any, kind: type, games_at_once: int | None
) -> tuple[StepResult, dict[str, torch.Tensor], list[int]]:
    """A whole step: its result, the weights after it, and the most rows of each engine."""
    tokenizer = AlwaysGuesses(qwen_like_tokenizer(), extra_stop_ids=many_stops(340))
    policy = backend.policy_of(qwen(340), tokenizer, temperature=0.8, max_context=900)
    engines: list[Spy] = []
    real = policy.engine

    def engine() -> Spy:
        engines.append(Spy(real()))
        return engines[-1]

    policy.engine = engine
    recipe = recipe_of(
        Grpo(beta=0.0), odd,
        kind=kind, groups=GROUPS, num_generations=SIZE, games_at_once=games_at_once,
        sampling=Sampling(temperature=0.8, max_tokens=8),
    )  # fmt: skip
    result = train_step(step_of(policy, recipe, 2))
    return result, backend.weights_of(policy), [engine.most for engine in engines]


def played(result: StepResult) -> list[Any]:
    """Every token of every rollout, with the group that it belongs to."""
    return [
        (r.group, r.game.secret, r.taken, [(t.prompt_ids, t.completion.ids) for t in r.turns])
        for r in result.rollouts
    ]


@pytest.mark.parametrize("kind", [WholeGame, OneTurn, BestOf])
def test_portions_are_the_same_games_and_the_same_update(kind, backend):
    if backend.name == "mlx" and kind is not WholeGame:
        pytest.skip("the kinds differ above the backend, so one of them is enough on MLX")
    whole, weights, [most] = learn(backend, kind, None)
    assert most == GROUPS * SIZE and whole.metrics["grad_norm"] > 0
    for games_at_once, sizes in ((SIZE, [3] * 5), (2 * SIZE + 1, [6, 6, 3])):
        result, after, engines = learn(backend, kind, games_at_once)
        assert engines == sizes
        assert played(result) == played(whole)
        assert same(after, weights)  # bit for bit


def test_a_group_must_fit_into_a_portion():
    with pytest.raises(ValueError, match=r"rollout.games_at_once must be 4 or more") as refused:
        WholeGame(groups=2, num_generations=4, games_at_once=3)
    assert "rollout.num_generations=4" in str(refused.value)
    WholeGame(groups=2, num_generations=4, games_at_once=4)


def test_games_are_halved_when_memory_runs_out(capsys):
    """And the rollouts are the same, because draws depend on game and turn alone."""

    class Small(WholeGame):
        def play(self, task: Any) -> list[Any]:
            if len(task.secrets) > 2:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            return list(task.places)

    class Task:
        def __init__(self, places: range) -> None:
            self.places = self.secrets = places

        def split(self, size: int) -> list[Any]:
            return [Task(self.places[i : i + size]) for i in range(0, len(self.places), size)]

    task: Any = Task(range(7))
    assert Small(groups=7, num_generations=3).play_in_portions(task) == list(range(7))
    assert "rollout.games_at_once=6" in capsys.readouterr().out

    class Broken(WholeGame):
        def play(self, task: Any) -> list[Any]:
            raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        Broken(groups=7, num_generations=3).play_in_portions(task)
