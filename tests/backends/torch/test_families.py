"""Every family of models plays, learns and is adapted as transformers and peft compute it.

One small random model of each architecture, in a folder as from the hub.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig

from tests.helpers.families import BATCH, CONFIGS, IDS, VOCAB, WIDE, save_family
from tests.helpers.tiny import (
    batch_of,
    full_forward,
    full_logprobs,
    gradients,
    many_stops,
    policy_of,
    same,
    weights_of,
)
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.torch import causal_lm
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.backends.torch.load import load_model
from wordle_rl.policy.prefix_cache import CachedEngine
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.runs.instantiate import ConfigError

PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
TARGETS = {name: PROJECTIONS for name in CONFIGS} | {
    "gpt2": {"c_attn", "c_proj", "c_fc"},
    "phi3": {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"},
}


@pytest.fixture(scope="module", params=CONFIGS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the family with large random weights, as a user would have it on disk."""
    return save_family(tmp_path_factory.mktemp(family.replace(" ", "_")), family)


def load(folder: Path, *, lora: str | list[str] | None = None, context: int = 256) -> Any:
    settings = ModelSettings(
        name="family",
        path=str(folder),
        learning_rate=1e-2,
        max_tokens=8,
        max_context=context,
        lora=None if lora is None else LoraSettings(rank=3, alpha=6.0, targets=lora),
    )
    return load_model(settings, precision="fp32", device="cpu")[0]


def reference_of(folder: Path) -> Any:
    """The same weights through transformers' own code alone."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.set_attn_implementation("eager")
    return model.eval()


def test_what_an_engine_draws_has_the_logprobs_of_a_plain_forward_pass(folder: Path) -> None:
    hf_model = reference_of(folder)
    stops = many_stops(VOCAB, every=9)
    engine = CachedEngine(
        TorchRows(CausalLM(load(folder))), stop_ids=frozenset(stops), max_context=60
    )
    random = np.random.default_rng(1)
    texts: list[list[int]] = [[] for _ in range(5)]
    sampling = Sampling(max_tokens=6)
    for turn in range(2):
        for text in texts:
            text += random.integers(6, VOCAB, random.integers(2, 12)).tolist()
        uniforms = Draws(seed=3, step=0).uniforms(np.arange(5), turn, 6)
        answers = engine.complete(texts, sampling, uniforms)
        for text, answer in zip(texts, answers, strict=True):
            text += answer.ids
            expected = full_logprobs(hf_model, text)[-len(answer.ids) :]
            np.testing.assert_allclose(answer.logprobs, expected, atol=2e-4)
    assert len({len(text) for text in texts}) > 1, "the rows must be ragged"


def test_a_checkpoint_is_read_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    policy = policy_of(load(folder))
    policy.save(tmp_path)
    before = weights_of(policy.machine.model)
    policy.update(BATCH, Grpo(beta=0.0))
    assert not same(weights_of(policy.machine.model), before)
    policy.load(tmp_path)
    assert same(weights_of(policy.machine.model), before)


def test_an_update_moves_the_language_model_and_the_reference_stays(folder: Path) -> None:
    policy = policy_of(load(folder))
    policy.keep_reference()
    before = policy.score(BATCH)
    names = {n: p.detach().clone() for n, p in policy.machine.model.named_parameters()}
    hf_model = reference_of(folder)
    for row, length in enumerate((24, 15)):
        expected = full_logprobs(hf_model, BATCH.ids[row, :length].tolist())
        trained = BATCH.trained[row, :length]
        np.testing.assert_allclose(before[row, :length][trained], expected[trained], atol=2e-4)
    batch = replace(BATCH, ref_logprobs=policy.score(BATCH, reference=True))
    metrics = policy.update(batch, Grpo(beta=0.1))
    assert metrics["update/skipped"] == 0.0
    moved_names = {
        n for n, p in policy.machine.model.named_parameters() if not torch.equal(p, names[n])
    }
    images = {n for n in names if "vision_tower" in n or "multi_modal" in n}
    frozen_names = {n for n, p in policy.machine.model.named_parameters() if not p.requires_grad}
    assert frozen_names == images and not moved_names & images
    assert len(moved_names) > 0.9 * (len(names) - len(images))
    assert np.abs(policy.score(BATCH) - before).max() > 1e-3
    np.testing.assert_array_equal(policy.score(BATCH, reference=True), before)


@pytest.mark.parametrize("fast", [True, False], ids=["written out if it is", "transformers'"])
@pytest.mark.parametrize("lora", [None, "all-linear"], ids=["full", "lora"])
@pytest.mark.parametrize("openings", [[24], [33, 18]], ids=["one", "two"])
def test_an_opening_that_is_computed_once_has_the_gradient_of_plain_forward_passes(
    folder: Path, openings: list[int], lora: Any, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fast:
        monkeypatch.setattr(causal_lm, "can_be_fast", lambda trunk: False)
    random = np.random.default_rng(0)
    rows = []
    for size in openings:
        prefix = random.integers(6, VOCAB, size + 2).tolist()  # the last two are trained
        rows += [
            (prefix + random.integers(6, VOCAB, n).tolist(), [0] * size + [1] * (n + 2))
            for n in (7, 4, 2)
        ]
    rows.append((rows[0][0], [0] * len(rows[0][0])))  # nothing of it is trained
    advantages = [1.0, -0.5, 0.7, -0.2, 0.4, 0.3, 0.1][: len(rows)]
    batch = batch_of(rows, advantages)
    model = load(folder, lora=lora)
    policy = policy_of(model)
    scores, slopes = policy.score(batch), gradients(policy, batch, Grpo(beta=0.0))
    model.zero_grad()
    loss, tokens = torch.zeros(()), sum(sum(marks) for _, marks in rows)
    for (ids, marks), row_scores, advantage in zip(rows, scores, advantages, strict=True):
        logprobs = full_forward(model, ids) * torch.tensor(marks)
        np.testing.assert_allclose(row_scores[: len(ids)], logprobs.detach(), atol=1e-5)
        loss = loss - advantage / tokens * logprobs.sum()
    loss.backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    scale = max(float(slope.abs().max()) for slope in expected.values())
    assert slopes.keys() == expected.keys() and scale > 0
    for name, slope in slopes.items():
        assert float((slope - expected[name]).abs().max()) < 1e-5 * scale, name


def test_adapters_are_on_attention_and_feed_forward_and_plain_peft_loads_them(
    family: str, folder: Path, tmp_path: Path
) -> None:
    model = load(folder, lora="all-linear")
    layers = {n.partition(".lora_A")[0] for n, _ in model.named_parameters() if ".lora_A." in n}
    assert {n.rpartition(".")[2] for n in layers} == TARGETS[family]
    assert not [n for n in layers if "vision_tower" in n or "projector" in n or "lm_head" in n]
    trunk = model.get_base_model().get_decoder()
    modules = [m for m in trunk.modules() if hasattr(m, "lora_A")]
    assert len(modules) == len(layers) >= 2 * len(TARGETS[family])
    policy = policy_of(model)
    policy.keep_reference()
    before = policy.score(BATCH)
    for _ in range(2):  # B begins at zero, so A moves only in the second
        policy.update(BATCH, Grpo(beta=0.0))
    after = policy.score(BATCH)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(policy.score(BATCH, reference=True), before, atol=1e-6)
    policy.machine.export(tmp_path / "adapter")
    hf_model: Any = PeftModel.from_pretrained(reference_of(folder), str(tmp_path / "adapter"))
    expected = full_logprobs(hf_model.eval(), BATCH.ids[0].tolist())
    trained = BATCH.trained[0]
    np.testing.assert_allclose(after[0][trained], expected[trained], atol=2e-4)
    scores = policy_of(load(tmp_path / "adapter")).score(BATCH)
    np.testing.assert_allclose(scores, after, atol=1e-6)


# -- what is refused ------------------------------------------------------------------------------


def rewrite(file: Path, **entries: Any) -> None:
    config = json.loads(file.read_text())
    config |= entries
    file.write_text(json.dumps({k: v for k, v in config.items() if v != "removed"}))


def test_games_that_are_too_long_for_learned_places_are_refused(tmp_path):
    save_family(tmp_path, "gpt2")
    load(tmp_path, context=256)
    with pytest.raises(ConfigError, match=r"model\.max_context must be at most 256 .* not 257"):
        load(tmp_path, context=257)


def test_games_beyond_the_trained_length_are_refused_when_rotations_depend_on_the_batch(tmp_path):
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 64,
    }
    config = save_family(tmp_path, "phi3") / "config.json"
    rewrite(config, rope_parameters=rope, original_max_position_embeddings=64)
    load(tmp_path, context=64)
    with pytest.raises(ConfigError, match=r"model\.max_context must be at most 64"):
        load(tmp_path, context=65)


def adapter(tmp_path: Path) -> Path:
    base = save_family(tmp_path / "base")
    policy_of(load(base, lora=["q_proj", "v_proj"])).machine.export(tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.mark.parametrize("targets", [["q_proj"], ["q_proj", "v_proj", "o_proj"]])
def test_an_adapter_whose_weights_are_not_those_of_its_layers_is_one_line(tmp_path, targets):
    rewrite(adapter(tmp_path) / "adapter_config.json", target_modules=targets)
    with pytest.raises(ConfigError, match="belongs to another model") as error:
        load(tmp_path / "adapter")
    assert "\n" not in str(error.value) and str(tmp_path / "adapter") in str(error.value)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("wider", "was trained on another model than"),
        ("gpt2", "was trained on another model than"),
        (None, "does not name its model"),
        (
            "fetched/smollm2",
            r"fetched/smollm2 is no folder here: run \S*wordle-rl fetch smollm2 once",
        ),
        ("embedded/giant", "embedded/giant is no folder here: write where its model is"),
    ],
)
def test_an_adapter_without_its_base_is_one_line(tmp_path, monkeypatch, base, said):
    monkeypatch.setenv("WORDLE_RL_CACHE", str(tmp_path / "cache"))  # where nothing was fetched
    folder = adapter(tmp_path)
    if base == "wider":
        config = LlamaConfig(**{**WIDE, "hidden_size": 64}, **IDS)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / base)
    elif base == "gpt2":
        save_family(tmp_path / base, base)
    name = base
    if base is not None and "/" not in base:
        name = str(tmp_path / base)
    rewrite(folder / "adapter_config.json", base_model_name_or_path=name)
    with pytest.raises(ConfigError, match=said) as error:
        load(folder)
    assert "\n" not in str(error.value)
