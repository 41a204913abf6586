"""Decoding that looks for stop tokens once in several tokens, as on CUDA."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.engines import SAMPLED, STOPS, VOCAB, assert_same, numbers, prompts, torch_model
from tests.helpers.tiny import qwen
from wordle_rl.backends.torch import engine as torch_engine

ROWS = 6


@pytest.mark.parametrize(("block", "most_looks"), [(1, 7), (3, 3), (8, 1)])
def test_the_device_is_waited_for_once_a_block(block, most_looks, monkeypatch):
    looks = []
    fetch = torch_engine.fetch_drawn

    def count(*drawn):
        looks.append(drawn)
        return fetch(*drawn)

    monkeypatch.setattr(torch_engine, "fetch_drawn", count)
    answers = []
    for size in (1, block):
        looks.clear()
        engine = torch_model(qwen(VOCAB).eval(), block=size).engine(stops=STOPS)
        rows = engine.open(ROWS)
        assert all(engine.extend(rows, prompts(ROWS, 0)))
        uniforms = np.stack([numbers(row, 0) for row in range(ROWS)])
        answers.append([[completion] for completion in engine.decode(rows, SAMPLED, uniforms)])
    assert_same(*answers)
    lengths = {len(answer[0].ids) for answer in answers[0]}
    assert len(lengths) > 2, "answers must end at different tokens"
    assert len(looks) == most_looks == -(-max(lengths) // block)
