"""Layers written out for rollouts compute what transformers' own forward pass computes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from torch import nn

from tests.helpers.engines import assert_same
from tests.helpers.families import build as build_family
from tests.helpers.tiny import gemma, llama, lora_of, many_stops, qwen
from wordle_rl.backends.tiny_model import save_untrained
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.backends.torch.fast import rollouts as lean_trunk
from wordle_rl.backends.torch.fast.rollouts import FastTrunk
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.prefix_cache import CachedEngine
from wordle_rl.policy.sampling import Draws, Sampling

VOCAB = 64
ROWS = 20
SAMPLING = Sampling(max_tokens=7)
BUILDS: dict[str, Callable[[], Any]] = {
    "qwen2": partial(qwen, VOCAB, factor=2.0),
    "llama": partial(llama, VOCAB, factor=2.0),
    "qwen3": partial(build_family, "qwen3"),
    "gemma3": partial(gemma, VOCAB),
}


def play(lm: CausalLM) -> list[Completion]:
    """Answers of rows of all lengths over three turns; some rows leave after the second."""
    engine = CachedEngine(
        TorchRows(lm), stop_ids=frozenset(many_stops(VOCAB, every=9)), max_context=200
    )
    random = np.random.default_rng(0)
    answers: list[Completion] = []
    talks: list[list[int]] = [[] for _ in range(ROWS)]
    for turn in range(3):
        for talk in talks:
            talk += random.integers(0, VOCAB, random.integers(1, 12)).tolist()
        uniforms = Draws(seed=3, step=0).uniforms(np.arange(len(talks)), turn, SAMPLING.max_tokens)
        outputs = engine.complete(talks, SAMPLING, uniforms)
        answers += outputs
        for talk, answer in zip(talks, outputs, strict=True):
            talk += answer.ids
        if turn == 1:
            talks = [talk for i, talk in enumerate(talks) if i % 3]
    return answers


def through_transformers(model: nn.Module) -> CausalLM:
    """A model whose rollouts go through transformers' forward pass."""
    lm = CausalLM(model)
    lm.choose_rollout_trunk = lambda: lm
    return lm


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
@pytest.mark.parametrize("most_scores", [lean_trunk._MOST_SCORES, 0], ids=["products", "fused"])
def test_logprobs_are_those_of_transformers_forward_pass(monkeypatch, most_scores, build):
    monkeypatch.setattr(lean_trunk, "_MOST_SCORES", most_scores)
    model = build().eval()
    lm = CausalLM(model)
    assert isinstance(lm.choose_rollout_trunk(), FastTrunk)
    answers = play(lm)
    assert len({len(c.ids) for c in answers}) > 3, "the rows must be ragged"
    assert_same([answers], [play(through_transformers(model))])


def test_models_with_more_than_is_written_out_go_through_transformers(tmp_path):
    models = {"mistral": build_family("mistral")}
    models["sees what follows"] = gemma(VOCAB, use_bidirectional_attention=True)
    models["bounded scores"] = gemma(VOCAB, attn_logit_softcapping=50.0)
    models["biased heads"] = gemma(VOCAB, attention_bias=True)
    models["more biases"] = llama(VOCAB, attention_bias=True)
    models["biases of the feed-forward part"] = llama(VOCAB, mlp_bias=True)
    shape = {"hidden_size": 32, "layers": 2, "heads": 4, "intermediate_size": 64}
    models["lora"] = lora_of(str(save_untrained(tmp_path, **shape)))
    models["hooked"] = qwen(VOCAB)
    models["hooked"].model.layers[0].register_forward_hook(lambda *_: None)
    models["window"] = qwen(VOCAB)
    models["window"].config.layer_types = ["sliding_attention", "full_attention"]
    models["rotation"] = qwen(VOCAB)
    models["rotation"].config.rope_parameters["rope_type"] = "dynamic"
    models["one rotation of two"] = gemma(VOCAB)
    models["one rotation of two"].config.rope_parameters["full_attention"]["rope_type"] = "yarn"
    models["parametrised"] = qwen(VOCAB)
    nn.utils.parametrizations.weight_norm(models["parametrised"].model.layers[1].mlp.down_proj)
    for name, model in models.items():
        lm = CausalLM(model)
        assert lm.choose_rollout_trunk() is lm, name
