"""Real weights: what is computed here is what transformers computes, token by token.

Each case needs a model that `wordle-rl fetch` gets, and is left out without it.
"""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.backends import torch_backend
from tests.helpers.marks import needs_real
from tests.helpers.runs import assert_equal_runs, resume, run, stop
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.adapters import convert_adapter
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.load import load_model
from wordle_rl.backends.torch.machine import TorchMachine
from wordle_rl.export.formats import write
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.models import fetched_folder
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling, Stream
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.policy.tokenizer import PLAIN_TEMPLATE
from wordle_rl.prompts.styles import Spelled
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.log import RunLog
from wordle_rl.training.update import pad

pytestmark = pytest.mark.slow
NAMES = ("smollm2", "gemma270m", "qwen0.5b-coder")
MODELS = [pytest.param(name, marks=needs_real(name), id=name) for name in NAMES]
GEMMA = needs_real("gemma270m")
LORA = LoraSettings(rank=4, alpha=8.0)


def settings_of(path: str | Path, lora: LoraSettings | None = LORA) -> ModelSettings:
    return ModelSettings(
        name="real", path=str(path), learning_rate=1e-3, max_tokens=16, max_context=1024, lora=lora
    )


def policy_of(path: str | Path, lora: LoraSettings | None = LORA) -> Policy:
    model, tokenizer = load_model(settings_of(path, lora), precision="fp32", device="cpu")
    return Policy(TorchMachine(model, tokenizer, optim=Optim(clip_grad_norm=0.0)))


def shake_policy(policy: Policy) -> Policy:
    """The policy with an adapter that does something, as after training."""
    shake(policy.machine.model)
    policy.machine.refresh_copy()
    return policy


@torch.no_grad()
def shake(model: torch.nn.Module) -> None:
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            noise = torch.Generator().manual_seed(len(name))
            weight.copy_(0.02 * torch.randn(weight.shape, generator=noise))


def games_of(policy: Policy, knowledge: Knowledge, grammar: Any) -> list[Talk]:
    """Two games of three answers as the policy plays them."""
    player = ModelPlayer(
        engine=policy.engine(),
        form=build_form("conversation", Chat(policy.tokenizer), Spelled()),
        sampling=Sampling(temperature=1.0, max_tokens=16, grammar=grammar),
        draws=Draws(seed=0, stream=Stream.EVALUATION),
        knowledge=knowledge,
    )
    games = play(player, new_games(["crane", "stump"], knowledge.words, Rules(max_turns=3)))
    return [talk for talks in player.all_talks(games) for talk in talks]


def hf_logprobs(hf_model: Any, talk: Talk) -> np.ndarray:
    """Log-probabilities [T] by transformers' own forward pass, 0 where nothing is trained."""
    with torch.no_grad():
        logits = hf_model(input_ids=torch.tensor([talk.ids])).logits[0].double()
    logprobs = np.zeros(len(talk.ids))
    for place, token in enumerate(talk.ids):
        if talk.trained[place]:
            choices = talk.choices[place]
            ids = torch.arange(logits.shape[1]) if choices is None else torch.as_tensor(choices)
            shares = logits[place - 1, ids].log_softmax(-1)
            logprobs[place] = shares[(ids == token).nonzero().item()]
    return logprobs


def gap(policy: Any, hf_model: Any, talks: list[Talk]) -> float:
    """How far the trainer's log-probabilities are from transformers' at most."""
    scores = policy.score(pad(talks, policy.tokenizer.pad_id))
    rows = zip(scores, talks, strict=True)
    return max(abs(row[: len(talk.ids)] - hf_logprobs(hf_model, talk)).max() for row, talk in rows)


def hf_model_of(name: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(fetched_folder(name), dtype=torch.float32).eval()


@pytest.mark.parametrize("name", MODELS)
def test_draws_and_scores_of_games_are_those_of_transformers(name, tmp_path, monkeypatch, original):
    policy = shake_policy(policy_of(fetched_folder(name)))
    policy.machine.export(tmp_path / "adapter")
    hf_model = PeftModel.from_pretrained(hf_model_of(name), tmp_path / "adapter").eval()
    open_talks, word_talks, clue_talks = (
        games_of(policy, original, grammar) for grammar in (None, "words", "clues")
    )
    assert any(choices is not None for talk in word_talks for choices in talk.choices)
    for talks in (open_talks, word_talks, clue_talks):
        assert gap(policy, hf_model, talks) < 1e-3
        for talk in talks:  # what the engine said while it drew, from its cache
            logprobs = np.where(talk.trained, talk.logprobs, 0.0)
            assert abs(logprobs - hf_logprobs(hf_model, talk)).max() < 1e-3
    monkeypatch.setattr(CausalLM, "is_fast", False)  # transformers' layers in place of our own
    assert gap(policy, hf_model, word_talks) < 1e-3
    monkeypatch.undo()
    write(tmp_path / "adapter", tmp_path / "merged", "merged", "float32")
    assert gap(policy_of(tmp_path / "merged", None), hf_model, word_talks) < 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_mlx_scores_a_game_as_transformers_does(name, tmp_path, original):
    mlx = pytest.importorskip("wordle_rl.backends.mlx.load")
    from wordle_rl.backends.mlx.machine import MlxMachine

    policy = shake_policy(policy_of(fetched_folder(name)))
    policy.machine.export(tmp_path / "adapter")
    talks = games_of(policy, original, "words")[:1]
    hf_model = PeftModel.from_pretrained(hf_model_of(name), tmp_path / "adapter").eval()
    convert_adapter(tmp_path / "adapter", tmp_path / "mlx", base=str(fetched_folder(name)))
    bundle = mlx.load_model(settings_of(tmp_path / "mlx"), precision="fp32")
    assert gap(Policy(MlxMachine(bundle, optim=Optim())), hf_model, talks) < 1e-3


@pytest.mark.parametrize("name", [pytest.param("gemma270m", marks=GEMMA)])
def test_the_gradient_of_an_adapter_is_the_same_on_mlx(name, original):
    pytest.importorskip("mlx.core")
    from tests.helpers.backends import mlx_backend

    gradients: list[dict[str, torch.Tensor]] = []
    talks = games_of(policy_of(fetched_folder(name)), original, "words")[:1]
    advantage = [[1.0 if learnt else 0.0 for learnt in talk.trained] for talk in talks]
    batch = pad(talks, 0, {"advantages": advantage, "weights": advantage})
    for backend in (torch_backend(), mlx_backend()):
        model, _ = load_model(settings_of(fetched_folder(name)), precision="fp32", device="cpu")
        shake(model)
        policy = backend.policy_of(model, clip_grad_norm=0.0)
        gradients.append(backend.gradients(policy, batch, Grpo(beta=0.0)))
    torch_grads, mlx_grads = gradients
    assert any(slope.abs().max() > 0 for slope in torch_grads.values())
    for name, slope in mlx_grads.items():  # mlx-lm has the transposed factors
        ending = {"lora_a": "lora_A", "lora_b": "lora_B"}[name.rpartition(".")[2]]
        grad = torch_grads[f"base_model.model.{name.rpartition('.')[0]}.{ending}.default.weight"]
        assert (grad - slope.T).norm() < 1e-4 * grad.norm(), name
    assert len(torch_grads) == len(mlx_grads)


@pytest.mark.parametrize("name", MODELS)
def test_template_and_end_of_an_answer_are_the_models_own(name):
    tokenizer: Any = AutoTokenizer.from_pretrained(fetched_folder(name))
    _, wrapper = load_model(settings_of(fetched_folder(name)), precision="fp32", device="cpu")
    template = tokenizer.chat_template
    begins = tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id]
    fallback = "{{ bos_token }}" + PLAIN_TEMPLATE if begins else PLAIN_TEMPLATE
    assert wrapper.inner.chat_template == (template or fallback)
    ends = ["<eos>"] if name == "gemma270m" else ["<|im_end|>"]
    ends += ["<|endoftext|>"] * name.startswith("qwen")  # as in the hub's generation_config.json
    assert wrapper.stop_ids == set(tokenizer.convert_tokens_to_ids(ends))
    chat = [{"role": "user", "content": "hello"}]
    form = build_form("conversation", Chat(wrapper), Spelled())
    if template:
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert form.chat.opening(None, "hello") == ids
    assert form.chat.answer("<guess> C R A N E</guess>")[-1] in wrapper.stop_ids


@pytest.mark.parametrize("name", [pytest.param("smollm2", marks=needs_real("smollm2"))])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(name, tmp_path, quiet):
    args = [
        f"model={name}",
        "experiment=imitate",
        "rollout.groups=2",
        "rules.max_turns=2",
        "backend.threads=1",
        "logger=none",
        "trainer.steps=2",
        "trainer.checkpoint_every=1",
        "trainer.validate_every=2",
        "trainer.validation_games=2",
        "optim.warmup_steps=0",
        "trainer.report=true",
        "trainer.report_limit=2",
    ]
    for place in ("whole", "stopped"):
        (tmp_path / place).mkdir()
    _, whole = run(tmp_path / "whole", *args)
    stop(RunLog, "metrics", 2, signal.SIGINT, partial(run, tmp_path / "stopped", *args))
    [part] = (tmp_path / "stopped").iterdir()
    resume(part)
    assert_equal_runs(part, whole)
