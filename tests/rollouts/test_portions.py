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
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.game.rules import PlayedTurn, State
from wordle_rl.policy.sampling import Sampling
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.kinds import KINDS, RolloutTask, play_task
from wordle_rl.rollouts.settings import RolloutSettings
from wordle_rl.training.step import StepResult, train_step

GROUPS, SIZE = 5, 3  # 15 games


def odd(turn: PlayedTurn) -> float:
    return float(turn.tokens % 2) + 0.1 * turn.state.turn + 0.01 * turn.tokens


def learn(
    backend: Any, kind: str, games_at_once: int | None
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
        (r.group, r.game.secret, r.taken, [(t.ids, t.answers) for t in r.talks])
        for r in result.rollouts
    ]


@pytest.mark.parametrize("kind", ["game", "best_of"])
def test_portions_are_the_same_games_and_the_same_update(kind, backend):
    if backend.name == "mlx" and kind != "game":
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
        RolloutSettings(groups=2, num_generations=4, games_at_once=3)
    assert "rollout.num_generations=4" in str(refused.value)
    RolloutSettings(groups=2, num_generations=4, games_at_once=4)


def test_games_are_halved_when_memory_runs_out(capsys, monkeypatch):
    """And the rollouts are the same, because draws depend on game and turn alone."""

    def play_small(task: Any) -> list[Any]:
        if len(task.secrets) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return list(task.places)

    def break_down(task: Any) -> list[Any]:
        raise RuntimeError("shapes do not match")

    recipe = recipe_of(Grpo(beta=0.0), odd, groups=7, num_generations=3)
    step: Any = step_of(None, recipe, chat=Chat(HFTokenizer(qwen_like_tokenizer())))
    task = RolloutTask(step=step, places=range(7), secrets=["crane"] * 7, starts=[State()] * 7)
    monkeypatch.setitem(KINDS, "game", play_small)
    assert play_task(task) == list(range(7))
    assert "rollout.games_at_once=6" in capsys.readouterr().out
    monkeypatch.setitem(KINDS, "game", break_down)
    with pytest.raises(RuntimeError, match="shapes"):
        play_task(task)
