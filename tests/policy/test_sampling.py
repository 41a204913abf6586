"""Draws are pure functions of their place in the run, and follow the model's distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wordle_rl.backends.torch.engine import draw_tokens
from wordle_rl.policy.sampling import Sampling, philox4x32, uniforms

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
ALMOST_ONE = 1.0 - 2.0**-53


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter, key, expected):
    drawn = philox4x32(np.array(counter, np.uint32), key)
    assert drawn.tolist() == list(expected)


def test_a_uniform_does_not_depend_on_which_others_are_asked_for():
    whole = uniforms(seed=5, step=3, rollouts=np.arange(20), turn=2, tokens=9)
    part = uniforms(seed=5, step=3, rollouts=np.array([17, 4]), turn=2, tokens=3)
    assert np.array_equal(part, whole[[17, 4], :3])


def test_seed_step_rollout_turn_and_token_each_change_the_uniforms():
    def at(seed=1, step=1, rollout=1, turn=1, token=1):
        rows = np.array([rollout])
        return uniforms(seed=seed, step=step, rollouts=rows, turn=turn, tokens=4)[0, token]

    # A seed has 64 bits: the upper half counts too.
    drawn = [
        at(),
        at(seed=2),
        at(seed=1 + 2**32),
        at(step=2),
        at(rollout=2),
        at(turn=2),
        at(token=2),
    ]
    assert len(set(drawn)) == 7


def test_uniforms_are_spread_evenly_over_the_unit_interval():
    drawn = uniforms(seed=0, step=0, rollouts=np.arange(500), turn=0, tokens=100).ravel()
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    expected = len(drawn) / 20
    assert drawn.min() >= 0 and drawn.max() < 1
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # 19 degrees of freedom, p = 0.001


def test_each_token_is_drawn_on_a_share_of_the_unit_interval_as_long_as_its_probability():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.3, -4.0])
    probabilities = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum()
    grid = (np.arange(10_000) + 0.5) / 10_000
    ids, logprobs = draw_tokens(logits.expand(10_000, -1), Sampling(), grid)
    # The distribution is inverted: ids rise with the uniform, and ties are told apart by place.
    assert (np.diff(ids) >= 0).all()
    assert np.abs(np.bincount(ids, minlength=5) / 10_000 - probabilities).max() <= 1e-4
    assert np.allclose(logprobs, np.log(probabilities)[ids], atol=1e-6)


def test_frequencies_of_drawn_tokens_follow_the_model_at_the_sampling_temperature():
    logits = torch.tensor([1.0, 0.0, -1.0, 0.5, 0.0, -2.0])
    weights = np.exp(logits.numpy() / 0.7)
    numbers = uniforms(seed=3, step=0, rollouts=np.arange(20_000), turn=0, tokens=1)[:, 0]
    ids, _ = draw_tokens(logits.expand(20_000, -1), Sampling(temperature=0.7), numbers)
    expected = 20_000 * weights / weights.sum()
    statistic = ((np.bincount(ids, minlength=6) - expected) ** 2 / expected).sum()
    assert statistic < 20.5  # 5 degrees of freedom, p = 0.001


@pytest.mark.parametrize("uniform", [0.0, 2.0**-53, 0.5, 1.0 - 2.0**-24, ALMOST_ONE])
def test_a_token_of_probability_zero_is_never_drawn(uniform):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 3001, generator=generator)
    logits[:, [0, 1, 1500, 2999, 3000]] = -torch.inf
    ids, logprobs = draw_tokens(logits, Sampling(), np.full(50, uniform))
    assert not set(ids) & {0, 1, 1500, 2999, 3000}
    assert np.isfinite(logprobs).all()


def test_temperature_zero_takes_the_likeliest_token_whatever_the_uniform():
    logits = torch.tensor([[0.0, 3.0, 1.0]] * 3)
    ids, logprobs = draw_tokens(logits, Sampling(temperature=0.0), np.array([0.0, 0.5, ALMOST_ONE]))
    assert ids.tolist() == [1, 1, 1]
    assert np.allclose(logprobs, 3.0 - np.log(1 + np.e**3 + np.e))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 99}, [0, 1, 2, 3]),
        ({"top_p": 0.45}, [1]),  # the likeliest token alone reaches 0.45
        ({"top_p": 0.55}, [1, 3]),
        ({"top_p": 0.79}, [1, 3]),
        ({"top_p": 0.90}, [1, 2, 3]),
        ({"top_k": 2, "top_p": 0.55}, [1]),  # 0.5 / 0.8 is above 0.55
    ],
)
def test_top_k_and_top_p_leave_the_likeliest_tokens_and_share_out_the_rest(settings, kept):
    probabilities = np.array([0.05, 0.5, 0.15, 0.3])
    logits = torch.tensor(np.log(probabilities), dtype=torch.float32).expand(1000, -1)
    ids, logprobs = draw_tokens(logits, Sampling(**settings), (np.arange(1000) + 0.5) / 1000)
    shares = probabilities / probabilities[kept].sum()
    assert sorted(set(ids)) == kept
    assert np.allclose(logprobs, np.log(shares)[ids], atol=1e-5)
    assert np.abs(np.bincount(ids, minlength=4)[kept] / 1000 - shares[kept]).max() <= 2e-3


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"temperature": 0.0}, "sampling.temperature"),
        ({"top_p": 0.9}, "sampling.top_p"),
        ({"top_k": 20}, "sampling.top_k"),
    ],
)
def test_draws_that_would_bias_the_gradient_are_refused_in_training(settings, key):  # row 4
    with pytest.raises(ValueError, match=key):
        Sampling(**settings).check_trainable()
    Sampling(temperature=0.7).check_trainable()


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", -0.1), ("max_tokens", 0), ("top_p", 0.0), ("top_p", 1.1), ("top_k", -1)],
)
def test_a_setting_out_of_range_is_named(field, value):
    with pytest.raises(ValueError, match=f"sampling.{field}"):
        Sampling(**{field: value})
