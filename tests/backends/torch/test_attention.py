"""Attention over short caches is that of transformers, window included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.helpers.tiny import gemma, plain_copy, qwen
from wordle_rl.backends.torch.attention import short_attention
from wordle_rl.backends.torch.causal_lm import CausalLM

VOCAB = 64


@pytest.mark.parametrize("queries", [1, 6])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_short_attention_is_softmax_of_scaled_scores_over_the_keys_in_sight(queries, scaling):
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(3, 4, queries, 8, generator=generator)
    key, value = torch.randn(2, 3, 2, 6, 8, generator=generator)  # two heads of keys for four
    mask = torch.rand(3, 1, queries, 6, generator=generator) < 0.6
    mask[..., 0] = True
    out, _ = short_attention(torch.nn.Module(), query, key, value, mask, scaling=scaling)
    for n, h, q in np.ndindex(3, 4, queries):
        seen = mask[n, 0, q]
        scores = key[n, h // 2, seen] @ query[n, h, q] * (8**-0.5 if scaling is None else scaling)
        expected = scores.softmax(0) @ value[n, h // 2, seen]
        assert torch.allclose(out[n, q, h], expected, atol=1e-6)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("build", [qwen, gemma])
def test_short_attention_gives_the_hidden_states_of_transformers_own(build, implementation):
    model = build(VOCAB).eval()
    other = plain_copy(model)
    other.set_attn_implementation(implementation)
    ids = torch.tensor([[5, 3, 9, 9, 1, 7, 2, 8, 30, 11]])
    with torch.no_grad():
        expected = other.get_decoder()(input_ids=ids).last_hidden_state
        assert torch.allclose(CausalLM(model).compute_hidden(ids), expected, atol=1e-5)


def test_gemmas_window_hides_what_lies_further_back():
    model = gemma(VOCAB, window=4).eval()
    model.config.layer_types = ["sliding_attention"] * 3
    for layer in model.model.layers:
        layer.attention_type = layer.self_attn.layer_type = "sliding_attention"
    lm = CausalLM(model)
    # Three layers of a window of 4 reach 9 tokens back, not 10.
    ids = torch.arange(1, 13)[None]
    far, near = ids.clone(), ids.clone()
    far[0, 1], near[0, 2] = 60, 60
    with torch.no_grad():
        before, after_far, after_near = (lm.compute_hidden(i)[0, 11] for i in (ids, far, near))
    assert torch.equal(before, after_far)
    assert not torch.equal(before, after_near)
