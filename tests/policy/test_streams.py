"""No two purposes share random numbers."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.helpers.tiny import WORDS, guessing_tokenizer, policy_of, qwen, recipe_of, step_of
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import RandomConsistent
from wordle_rl.policy import sampling
from wordle_rl.policy.batch import minibatches
from wordle_rl.policy.sampling import Purpose, Sampling, planned
from wordle_rl.rollouts.history import History
from wordle_rl.rollouts.play import Portions
from wordle_rl.training.secrets import spare_secrets
from wordle_rl.training.step import train_step
from wordle_rl.training.validation import HeldOutPlay

SMALL = range(6)
SEEDS = [*SMALL, *(2**32 * high + low for high in (1, 2) for low in (0, 1, 5)), 2**63 - 1]


def generators(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], object]) -> set[str]:
    """The first state of each generator that is made."""
    states: set[str] = set()
    make_rng = np.random.default_rng

    def default_rng(seed: Any) -> np.random.Generator:
        states.add(str((rng := make_rng(seed)).bit_generator.state))
        return rng

    with monkeypatch.context() as patch:
        patch.setattr(np.random, "default_rng", default_rng)
        draw()
    return states


def test_no_two_purposes_have_one_generator_for_any_seeds_steps_and_epochs(monkeypatch):  # row 33
    words = [f"word{i}" for i in range(3)]
    groups = np.arange(4)
    draws: dict[str, Callable[[int, int, int], object]] = {
        "secrets of a step": lambda s, step, n: planned(words, s, range(3 * step, 3 * step + 3)),
        "secrets of replacements": lambda s, step, n: spare_secrets(
            words, seed=s, step=step, positions=range(3)
        ),
        "minibatches": lambda s, step, n: minibatches(groups, 2, seed=s, step=step, epoch=n),
    }
    states = {
        name: generators(
            monkeypatch,
            lambda draw=draw: [draw(*key) for key in itertools.product(SEEDS, SMALL, SMALL)],
        )
        for name, draw in draws.items()
    }
    for first, second in itertools.combinations(states, 2):
        assert not states[first] & states[second], f"{first} and {second}"
    keys = len(SEEDS) * len(SMALL)
    assert len(states["secrets of a step"]) == len(states["secrets of replacements"]) == keys
    assert len(states["minibatches"]) == keys * len(SMALL)


@pytest.mark.parametrize("purpose", [None, Purpose.ALLOWED_SECRETS])
def test_every_seed_plays_all_secrets_in_other_orders_in_each_epoch(purpose):
    words = [f"word{i}" for i in range(20)]
    orders = [
        tuple(planned(words, seed, range(start, start + 20), purpose))
        for seed, start in itertools.product((0, 1, 2, 2**63 - 1), (0, 20, 40))
    ]
    assert all(sorted(order) == sorted(words) for order in orders)
    assert len(set(orders)) == len(orders)


def uniforms_used(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], object]) -> set[tuple]:
    """Key and counter of each uniform that is drawn."""
    places: set[tuple] = set()
    function = sampling.philox4x32

    def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
        places.update((*key, *map(int, row)) for row in counter.reshape(-1, 4))
        return function(counter, key)

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "philox4x32", philox)
        draw()
    return places


@pytest.fixture
def policy() -> Any:
    return policy_of(qwen(340), guessing_tokenizer())


def test_training_its_histories_and_validation_draw_other_uniforms(policy, monkeypatch):  # row 33
    player = RandomConsistent(Knowledge(WORDS, feedback_table(WORDS)), "allowed")
    history = History(least=1, most=1, player=player, stand_in=player)
    recipe = recipe_of(Grpo(beta=0.0), lambda turn: 0.0, seed=0)
    turns = recipe.rules.max_turns
    setup: Any = SimpleNamespace(recipe=recipe, greedy=None, model=SimpleNamespace(games_at_once=4))
    draws: dict[str, Callable[[int], object]] = {
        "training": lambda step: train_step(step_of(policy, recipe, step)),
        "histories": lambda step: history.states(
            WORDS.answers, range(3), seed=0, step=step, max_turns=turns
        ),
        "validation": lambda _: HeldOutPlay(
            policy=policy, form=step_of(policy, recipe).form, setup=setup, portions=Portions()
        ).play(WORDS.answers, "test", sampling=Sampling()),
    }
    uniforms = {
        name: uniforms_used(monkeypatch, lambda draw=draw: [draw(0), draw(1)])
        for name, draw in draws.items()
    }
    assert all(uniforms.values())
    for first, second in itertools.combinations(uniforms, 2):
        assert not uniforms[first] & uniforms[second], f"{first} and {second}"
