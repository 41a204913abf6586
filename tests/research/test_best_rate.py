"""The rate at which wins are highest, from wins at three rates."""

import numpy as np
import pytest

from research.best_rate import RATES, find_top


def test_the_top_of_a_parabola_is_found():
    places = np.log10([float(rate) for rate in RATES])
    wins = np.stack([20 - 3 * (places - top) ** 2 for top in (-4.5, -4.0, -3.7)])
    assert find_top(wins) == pytest.approx([-4.5, -4.0, -3.7])
