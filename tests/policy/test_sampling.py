"""Draws are pure functions of their place in the run, and invert the model's distribution."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

from wordle_rl.backends.mlx import engine as mlx_engine
from wordle_rl.backends.torch import engine as torch_engine
from wordle_rl.policy.sampling import Draws, Sampling, philox4x32

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
ALMOST_ONE = 1.0 - 2.0**-53
DRAWS: dict[str, Callable[..., Any]] = {
    "torch": lambda logits, *rest: torch_engine.draw_tokens(torch.from_numpy(logits), *rest),
    "mlx": lambda logits, *rest: mlx_engine.draw_tokens(mx.array(logits), *rest),
}


@pytest.fixture(params=DRAWS)
def draw(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """(logits, sampling, uniforms) -> ids and log-probabilities, on each backend."""
    return DRAWS[request.param]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter, key, expected):
    numbers = philox4x32(np.array(counter, np.uint32), key)
    assert numbers.tolist() == list(expected)


def test_a_uniform_depends_on_its_own_place_in_the_run_alone():
    whole = Draws(seed=5, step=3).uniforms(np.arange(20), 2, 9)
    part = Draws(seed=5, step=3).uniforms(np.array([17, 4]), 2, 3)
    assert np.array_equal(part, whole[[17, 4], :3])

    def at(seed=1, step=1, rollout=1, turn=1, token=1):
        rows = np.array([rollout])
        return Draws(seed=seed, step=step).uniforms(rows, turn, 4)[0, token]

    # A seed has 64 bits: the upper half counts too.
    changes = ({}, {"seed": 2}, {"seed": 1 + 2**32}, *({n: 2} for n in ("step", "rollout", "turn")))
    assert len({at(**change) for change in (*changes, {"token": 2})}) == 7


def test_uniforms_are_spread_evenly_over_the_unit_interval():
    uniforms = Draws(seed=0, step=0).uniforms(np.arange(500), 0, 100).ravel()
    counts = np.histogram(uniforms, bins=20, range=(0, 1))[0]
    expected = len(uniforms) / 20
    assert uniforms.min() >= 0 and uniforms.max() < 1
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # 19 degrees of freedom, p = 0.001


def test_each_token_is_drawn_on_a_share_of_the_unit_interval_as_long_as_its_probability(draw):
    logits = np.array([0.3, -1.0, 2.0, 0.3, -4.0], np.float32)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    grid = (np.arange(10_000) + 0.5) / 10_000
    ids, logprobs = draw(np.tile(logits, (10_000, 1)), Sampling(), grid)
    # The distribution is inverted: ids rise with the uniform, and ties are told apart by place.
    assert (np.diff(ids) >= 0).all()
    assert np.abs(np.bincount(ids, minlength=5) / 10_000 - probabilities).max() <= 1e-4
    assert np.allclose(logprobs, np.log(probabilities)[ids], atol=1e-5)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0 - 2.0**-24, ALMOST_ONE])
def test_a_token_of_probability_zero_is_never_drawn(uniform, draw):
    logits = np.random.default_rng(0).normal(size=(50, 3001)).astype(np.float32)
    logits[:, [0, 1, 1500, 2999, 3000]] = -np.inf
    ids, logprobs = draw(logits, Sampling(), np.full(50, uniform))
    assert not set(ids) & {0, 1, 1500, 2999, 3000}
    assert np.isfinite(logprobs).all()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.05])
@pytest.mark.parametrize("size", [1, 127, 128, 129, 5000])
def test_a_uniform_is_within_the_share_of_the_token_that_torch_draws(size, temperature):
    chance = np.random.default_rng(size)
    logits = (5 * chance.normal(size=(300, size))).astype(np.float32)
    numbers = np.append(chance.random(298), [0.0, ALMOST_ONE])
    ids, logprobs = DRAWS["torch"](logits, Sampling(temperature=temperature), numbers)
    table = logits.astype(np.float64) / temperature
    table = np.exp(table - table.max(axis=1, keepdims=True))
    table /= table.sum(axis=1, keepdims=True)
    shares = table[np.arange(300), ids]
    ends = table.cumsum(axis=1)[np.arange(300), ids]
    # Two tokens may change places only where the uniform is at the edge between them.
    assert (ends - shares - 1e-6 <= numbers).all() and (numbers <= ends + 1e-6).all()
    assert np.abs(logprobs - np.log(shares)).max() <= 5e-6


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.7), Sampling()])
def test_a_draw_does_not_depend_on_the_other_rows(sampling, monkeypatch):
    chance = np.random.default_rng(2)
    logits = torch.from_numpy((3 * chance.normal(size=(60, 3001))).astype(np.float32))
    numbers = chance.random(60)
    ids, logprobs = torch_engine.draw_tokens(logits, sampling, numbers)
    for part in (slice(7, 8), slice(3, 40), slice(None, None, 3)):
        for at_once in (2**24, 2**14):
            monkeypatch.setattr(torch_engine, "_BYTES", at_once)
            draws = torch_engine.draw_tokens(logits[part], sampling, numbers[part])
            assert np.array_equal(draws[0], ids[part])
            assert np.array_equal(draws[1], logprobs[part])


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7),
        Sampling(temperature=1.3),
        Sampling(temperature=0.5),
        Sampling(),
        Sampling(temperature=0.0),
    ],
)
def test_a_draw_inverts_the_distribution_that_the_settings_leave(sampling, draw):
    logits = np.random.default_rng(3).normal(size=(5, 8)).astype(np.float32)
    numbers = np.array([0.0, 0.3, 0.6, 0.9, 1.0 - 2.0**-24])
    ids, logprobs = draw(logits, sampling, numbers)
    for row in range(5):
        expected, table = slow_draw(logits[row].astype(np.float64), sampling, numbers[row])
        assert ids[row] == expected
        assert logprobs[row] == pytest.approx(np.log(table[expected]), abs=1e-5)


def slow_draw(logits: np.ndarray, sampling: Sampling, uniform: float) -> tuple[int, np.ndarray]:
    """Token and probabilities, by sorting and adding up one token after the other."""
    table = np.exp(logits / (sampling.temperature or 1.0))
    table /= table.sum()
    if sampling.temperature == 0.0:
        return int(logits.argmax()), table
    places = np.flatnonzero(table.cumsum() > uniform)
    return int(places[0] if len(places) else len(table) - 1), table


def test_greedy_draws_are_refused_in_training():  # row 4
    with pytest.raises(ValueError, match=r"sampling\.temperature"):
        Sampling(temperature=0.0).check_trainable()
    Sampling(temperature=0.7).check_trainable()
