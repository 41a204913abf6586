"""Families that the engine does not know play and learn as transformers computes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.helpers.commands import training
from tests.helpers.families import BATCH, IDS, VOCAB, WIDE
from tests.helpers.tiny import (
    WORDS,
    batch_of,
    full_forward,
    gradients,
    lora_of,
    many_stops,
    policy_of,
    qwen_like_tokenizer,
    recipe_of,
    same,
    sharpen,
    step_of,
    weights_of,
)
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.sft import Sft
from wordle_rl.backends.sizes import read_sizes
from wordle_rl.backends.torch.plain import PlainLM
from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.step import train_step
from wordle_rl.training.update import pad

pytestmark = pytest.mark.slow

BASE: dict[str, Any] = WIDE | IDS | {"max_position_embeddings": 1000}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 9.0},
    "granite": {"logits_scaling": 4.0, "embedding_multiplier": 3.0},
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "logits_scaling": 4.0,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "mamba": {"state_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1},
    "qwen3_moe": EXPERTS,
    "qwen3_next": EXPERTS
    | {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
}


def build(family: str) -> Any:
    config = AutoConfig.for_model(family, **(BASE | FAMILIES.get(family, {})))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return sharpen(AutoModelForCausalLM.from_config(config), 3.0).eval()


def save(model: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    qwen_like_tokenizer().save_pretrained(folder)


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


@pytest.mark.parametrize("grammar", [None, "words"])
def test_games_are_played_and_scored_as_by_a_whole_forward_pass(model, grammar):
    stops = () if grammar else many_stops(VOCAB, 9)
    tokenizer = HFTokenizer(qwen_like_tokenizer(), extra_stop_ids=stops)
    policy = policy_of(model, tokenizer)
    form = build_form("conversation", Chat(tokenizer), Symbols())
    player = ModelPlayer(
        engine=policy.engine(),
        form=form,
        sampling=Sampling(max_tokens=20, grammar=grammar),
        draws=Draws(seed=1),
        knowledge=Knowledge(WORDS, build_table(WORDS)),
    )
    games = play(player, new_games(["crane", "slate"] * 4, WORDS, Rules(max_turns=3)))
    talks = [talk for [talk] in player.all_talks(games)]
    assert len({len(talk.ids) for talk in talks}) > 2 < max(len(game.turns) for game in games)
    for talk, row in zip(talks, policy.score(pad(talks, 0)), strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([talk.ids])).logits[0].double()
        for place in np.flatnonzero(talk.trained):
            choices: Any = talk.choices[place] if grammar else np.arange(VOCAB)
            shares = logits[place - 1, torch.from_numpy(choices)].log_softmax(-1)
            expected = float(shares[choices.tolist().index(talk.ids[place])])
            assert talk.logprobs[place] == pytest.approx(expected, abs=2e-4)
            assert row[place] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("lora", [False, True])
def test_two_steps_of_grpo_change_what_is_trained_and_are_read_back(model, lora, tmp_path):
    save(model, tmp_path / "model")
    network = lora_of(str(tmp_path / "model")) if lora else model
    stops = many_stops(VOCAB, 9)
    policy = policy_of(network, HFTokenizer(qwen_like_tokenizer(), extra_stop_ids=stops))
    before = weights_of(network)
    recipe = recipe_of(Grpo(beta=0.0), lambda turn: float(turn.tokens))
    for number in range(2):
        metrics = train_step(step_of(policy, recipe, number)).metrics
        assert np.isfinite(metrics["loss"]) and not metrics["update/skipped"]
        assert metrics["policy/sampler_gap"] < 1e-4 and metrics["grad_norm"] > 0
    after = weights_of(network)
    names = {name for name in before if not torch.equal(before[name], after[name])}
    assert names and all(("lora_" in name) == lora for name in names)
    assert not (lora and [name for name in after if "lora_" in name and "experts" in name])
    policy.save(tmp_path)
    policy.update(BATCH, Grpo(beta=0.0))
    policy.load(tmp_path)
    assert same(weights_of(network), after)


def test_an_adapter_below_scaled_logits_learns_as_by_the_family_s_own_code(tmp_path):
    save(build("granite"), tmp_path)
    policy = policy_of(lora_of(str(tmp_path)))
    ids = [3, 9, 4, 30, 31]
    grads = gradients(policy, batch_of([(ids, [0, 0, 0, 1, 1])], [1.0]), Sft())
    (-full_forward(policy.machine.model, ids)[3:].mean()).backward()
    expected = {n: p.grad for n, p in policy.machine.model.named_parameters() if p.grad is not None}
    assert grads.keys() == expected.keys() and len(grads) > 0
    for name, gradient in grads.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-3, atol=1e-6), name


def test_a_command_trains_and_resumes_bit_for_bit(tmp_path, capsys):
    save(build("lfm2"), tmp_path / "model")
    line = (
        f"model={tmp_path / 'model'} experiment=none rollout.groups=2 num_generations=2 "
        "words.val=4 words.test=4 prompt.think=false sampling.max_tokens=9 trainer.show_games=0 "
        "backend.accelerator=cpu backend.precision=fp32 logger=none model.lora=null "
        "trainer.report=false trainer.validate_every=9 trainer.checkpoint_every=1 name=run"
    )
    for name, steps in (("whole", 2), ("part", 1)):
        training(f"{line} output_dir={tmp_path / name} trainer.steps={steps}")()
    assert "lfm2: played by transformers' own cache, slower" in capsys.readouterr().out
    [whole], [part] = [list((tmp_path / name).iterdir()) for name in ("whole", "part")]
    training(f"resume={part} trainer.steps=2")()
    files = [run / "checkpoints/step_000002/model/model.safetensors" for run in (whole, part)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("name", ["qwen3_moe", "mamba", "lfm2"])
def test_the_plan_of_memory_counts_all_weights(name):
    model = build(name)
    sizes = read_sizes(model.config)
    assert sizes.parameters == model.num_parameters()
    assert name != "qwen3_moe" or sizes.inner >= 2 * 16  # of two experts


def test_a_model_that_sees_later_tokens_is_one_line():
    with pytest.raises(ConfigError, match=r"model\.path must name a model .* not bert: ") as error:
        PlainLM(build("bert"))
    assert "\n" not in str(error.value)
