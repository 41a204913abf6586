"""Bands of reference runs, and where a run leaves them."""

import math
import statistics

import numpy as np
import pytest

from wordle_rl.evaluation.reference import Band, band_of, curve_of, find_exit

T_OF_4 = 4.604094871  # 99.5 % quantile of Student's t with 4 degrees of freedom, from a table


def seeds(count, steps, random, offset=0.0):
    """Curves that rise, with noise of each step and of each seed."""
    trend = np.linspace(0.3, 0.8, steps)
    rows = [trend + random.normal(0, offset) + random.normal(0, 0.02, steps) for _ in range(count)]
    return [dict(enumerate(curve, 1)) for curve in rows]


def test_the_band_is_a_prediction_interval_of_five_neighbours():
    curves = seeds(3, 9, np.random.default_rng(0))
    band = band_of("reward/mean", curves)
    for place, step in enumerate(band.steps):
        window = [s for s in range(1, 10) if abs(s - step) <= 2]
        spread = math.sqrt(
            statistics.mean(statistics.variance([c[s] for c in curves]) for s in window)
        )
        half = T_OF_4 * spread * math.sqrt(4 / 3)
        middle = statistics.mean(curve[step] for curve in curves)
        assert band.low[place] == pytest.approx(middle - half)
        assert band.high[place] == pytest.approx(middle + half)


@pytest.mark.parametrize("offset", [0.0, 0.01])
@pytest.mark.parametrize("count", [3, 5])
def test_of_further_runs_of_the_same_settings_hardly_any_leaves(count, offset):
    random = np.random.default_rng(1)
    exits = 0
    for _ in range(300):
        *references, curve = seeds(count + 1, 40, random, offset)
        exits += find_exit(band_of("reward/mean", references), curve) is not None
    assert exits <= 15  # 5 %


def test_one_value_outside_is_chance_and_two_in_a_row_are_none():
    band = Band("reward/mean", 3, [1, 2, 3, 4], np.zeros(4), np.ones(4))
    curve = dict.fromkeys(range(1, 5), 0.5)
    assert find_exit(band, curve) is None
    assert find_exit(band, {**curve, 2: 7.0}) is None
    assert find_exit(band, {**curve, 2: 7.0, 3: -7.0}) is None
    exit = find_exit(band, {**curve, 2: 7.0, 3: 8.0})
    assert (exit.step, exit.value, exit.low, exit.high) == (2, 7.0, 0.0, 1.0)
    assert find_exit(band, {**curve, 4: -7.0}).step == 4  # the last one
    assert find_exit(band, {}) is None


def test_steps_that_only_some_have_and_values_that_are_no_numbers_do_not_count():
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "a": None}, {"step": 3, "a": math.nan}, {"b": 1}]
    assert curve_of(rows, "a") == {1: 1.0}
    assert band_of("a", [{1: 0.0, 2: 0.0}, {2: 1.0, 3: 0.0}, {2: 2.0}]).steps == [2]
    assert band_of("a", [{1: 0.0}, {1: 1.0}]) is None  # two seeds have no spread to speak of
    assert band_of("a", [{1: 0.0}, {2: 1.0}, {3: 1.0}]) is None


def test_a_share_of_wins_has_no_band_beyond_0_and_1():
    band = band_of("val/win_rate", [{1: 0.9}, {1: 0.99}, {1: 0.8}])
    assert band.high[0] == 1.0 and band.low[0] >= 0
