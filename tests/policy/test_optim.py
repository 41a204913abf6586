"""The learning rate of each step."""

import pytest

from wordle_rl.policy.optim import Optim


def test_the_rate_rises_evenly_and_falls_by_a_cosine_to_its_end():
    optim = Optim(lr=2.0, schedule="cosine", warmup_steps=2, final_lr_ratio=0.1)
    # a third of half a cosine is down by a quarter
    expected = [1.0, 2.0, 2.0, 2.0 * 0.775, 2.0 * 0.325, 0.2]
    assert [optim.lr_at(step, 6) for step in range(6)] == pytest.approx(expected)
    constant = Optim(lr=2.0, schedule="constant", warmup_steps=2)
    assert [constant.lr_at(step, 4) for step in range(4)] == [1.0, 2.0, 2.0, 2.0]
