"""Tiny models, tokenizers and batches that several test files share; everything is offline."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

from wordle_rl.backends.tiny_model import build_model
from wordle_rl.backends.torch.load import load_model
from wordle_rl.backends.torch.machine import TorchMachine
from wordle_rl.game.rules import PlayedTurn, Rules
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import PHRASES, Symbols
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.settings import Recipe, RolloutSettings, Step
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.update import pad
from wordle_rl.words.lists import WordLists

disable_progress_bar()  # saving a model shows one

SHAPE = {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64}
WORDS = WordLists(
    answers=("crane", "slate", "sleep"), allowed=("crane", "crept", "slate", "sleep"), name="tiny"
)
_TEMPLATES = Path(__file__).with_name("templates")
# As Qwen2.5's: a system prompt of its own when the conversation brings none.
CHATML = (_TEMPLATES / "chatml.jinja").read_text()
# As Qwen2.5's with tools: they stand in the system prompt, a result is a user's message.
QWEN_TOOLS = (_TEMPLATES / "qwen_tools.jinja").read_text()
# As Gemma's: it writes <bos> itself, and puts the system prompt in front of the first message.
GEMMA = (_TEMPLATES / "gemma.jinja").read_text()


def _byte_level_bpe(special_tokens: list[str]) -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    text = [*PHRASES, *(f"<guess>{word}</guess>" for word in WORDS.allowed)] * 3
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=special_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(text, trainer)
    return core


@cache
def qwen_like_tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """Byte-level BPE with merges and Qwen's chat template: most id lists are not canonical."""
    inner = PreTrainedTokenizerFast(
        tokenizer_object=_byte_level_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        clean_up_tokenization_spaces=False,
    )
    inner.chat_template = template
    return inner


@cache
def gemma_like_tokenizer() -> PreTrainedTokenizerFast:
    """Adds <bos> to whatever it encodes unless told not to; so does its template. Pad == eos."""
    special_tokens = ["<bos>", "<start_of_turn>", "<end_of_turn>"]
    core = _byte_level_bpe(special_tokens)
    core.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", core.token_to_id("<bos>"))]
    )
    inner = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<bos>",
        eos_token="<end_of_turn>",
        clean_up_tokenization_spaces=False,
    )
    inner.chat_template = GEMMA
    return inner


def sharpen(model: Any, factor: float = 6.0) -> Any:
    """Larger weights, so that a model's predictions depend clearly on what it has read."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
    return model


def qwen(vocab_size: int = 64, *, seed: int = 0, factor: float = 6.0) -> Any:
    """A Qwen2 of at most 50,000 weights, with transformers' own attention."""
    return sharpen(build_model(vocab_size=vocab_size, seed=seed, **SHAPE), factor)


def llama(vocab_size: int = 64, *, seed: int = 0, factor: float = 6.0, **config: Any) -> Any:
    """A Llama of the same size, tied as SmolLM2, without biases unless the config has them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab_size,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=64,
                tie_word_embeddings=True,
                **config,
            )
        )
    return sharpen(model, factor)


def gemma(
    vocab_size: int = 64,
    *,
    window: int = 4,
    softcap: float | None = None,
    seed: int = 0,
    **config: Any,
) -> Any:
    """A Gemma3 with two sliding-window layers and one that sees everything."""
    settings = Gemma3TextConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=window,
        query_pre_attn_scalar=8,
        final_logit_softcapping=softcap,
        pad_token_id=0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **config,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return sharpen(Gemma3ForCausalLM(settings))


def plain_copy(model: Any) -> Any:
    """A copy of a model that attends through transformers' own eager code, written apart."""
    clone = copy.deepcopy(model).eval()
    clone.set_attn_implementation("eager")
    return clone


def full_forward(model: Any, ids: Sequence[int], *, temperature: float = 1.0) -> torch.Tensor:
    """[T] log-probability of each token given those before it, 0 for the first; with gradient.

    One unpadded row, float64 log-softmax, no code of the package.
    """
    row = torch.tensor([list(ids)])
    logits = model(input_ids=row).logits[0, :-1].double() / temperature
    logprobs = logits.log_softmax(-1).gather(1, row[0, 1:, None])[:, 0]
    return torch.cat([torch.zeros(1, dtype=torch.float64), logprobs])


def full_logprobs(model: Any, ids: Sequence[int], *, temperature: float = 1.0) -> np.ndarray:
    """full_forward as an array [T]."""
    with torch.no_grad():
        return full_forward(model, ids, temperature=temperature).numpy()


class AlwaysGuesses(HFTokenizer):
    """Reads some word of the list into any answer, so that untrained models play real games."""

    def decode(self, ids: list[int]) -> str:
        return f"<guess>{WORDS.allowed[sum(ids) % len(WORDS.allowed)]}</guess>"


def guessing_tokenizer() -> AlwaysGuesses:
    """Guesses in any answer of a model of 340 tokens, whose answers end at all lengths."""
    return AlwaysGuesses(qwen_like_tokenizer(), extra_stop_ids=many_stops(340))


def many_stops(vocab_size: int, every: int = 6) -> tuple[int, ...]:
    """Stop ids so frequent that untrained models end their answers at all lengths."""
    return tuple(range(5, vocab_size, every))


def policy_of(
    model: Any, tokenizer: HFTokenizer | None = None, *, temperature: float = 1.0, **settings: Any
) -> Policy:
    """A policy on a model; optim fields (lr, ...), Machine's and Policy's settings by keyword."""
    tokenizer = tokenizer or HFTokenizer(qwen_like_tokenizer())
    machine = TorchMachine(model, tokenizer, **take_machine_settings(settings))
    return Policy(machine, temperature=temperature, **settings)


def take_machine_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Those of a machine. Fields of its optimiser are there by their names."""
    fields = {k: settings.pop(k) for k in list(settings) if k in Optim.__dataclass_fields__}
    names = ("precision", "gradient_checkpointing")
    optim = Optim(**{"lr": 1e-2, "clip_grad_norm": 0.0, **fields})
    return {"optim": optim} | {k: settings.pop(k) for k in names if k in settings}


def lora_of(path: str, *, dropout: float = 0.0, rank: int = 4, seed: int = 0) -> Any:
    """The network of a folder, with a fresh adapter unless the folder is one."""
    settings = ModelSettings(
        name="tiny",
        path=path,
        learning_rate=1e-2,
        max_tokens=8,
        max_context=256,
        lora=LoraSettings(rank=rank, alpha=2.0 * rank, dropout=dropout),
    )
    torch.manual_seed(seed)  # peft draws the A matrices from torch's generator
    return load_model(settings, precision="fp32", device="cpu")[0]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """A reward that is any function of a turn."""

    of: Callable[[PlayedTurn], float]
    range = (-10.0, 10.0)

    def __call__(self, turn: PlayedTurn) -> float:
        return self.of(turn)


def recipe_of(algorithm: Any, reward: Callable[[PlayedTurn], float], **fields: Any) -> Recipe:
    """A step of the three-word game: by default 2 groups of 3 games of up to 3 turns.

    fields: of the recipe, or of its rollouts.
    """
    defaults: dict[str, Any] = {
        "words": WORDS,
        "rules": Rules(max_turns=3),
        "style": Symbols(),
        "sampling": Sampling(max_tokens=8),
        "teacher": None,
        "secrets": WORDS.answers,
        "seed": 1,
    }
    settings = {"groups": 2, "num_generations": 3, **fields}
    names = RolloutSettings.__dataclass_fields__
    rollout = {key: settings.pop(key) for key in names if key in settings}
    rewards = RewardSet(components={"any": Scores(of=reward)}, weights={"any": 1.0}, lawful=False)
    return Recipe(
        algorithm=algorithm,
        rewards=rewards,
        rollout=RolloutSettings(**rollout),
        **(defaults | settings),
    )


def step_of(policy: Any, recipe: Recipe, number: int = 0, chat: Chat | None = None) -> Step:
    """A step of a policy. chat: the policy's own unless given."""
    form = build_form(recipe.rollout.form, chat or Chat(policy.tokenizer), recipe.style)
    return Step(policy=policy, form=form, recipe=recipe, number=number)


def batch_of(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]],
    advantages: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    pad_id: int = 0,
    sampler: Sequence[Sequence[float]] | None = None,
) -> Batch:
    """A batch by hand: per row its ids and 0/1 marks of trained tokens, and one advantage."""
    tokens = sum(sum(marks) for _, marks in rows)
    share = list(weights) if weights is not None else [1.0 / max(tokens, 1)] * len(rows)
    sequences = [
        Talk(
            ids=list(ids),
            trained=[bool(m) for m in marks],
            logprobs=list(sampler[i]) if sampler else [0.0] * len(ids),
            turns=[0] * len(ids),
            choices=[None] * len(ids),
        )
        for i, (ids, marks) in enumerate(rows)
    ]
    values = {
        "advantages": [[advantages[i] * m for m in marks] for i, (_, marks) in enumerate(rows)],
        "weights": [[share[i] * m for m in marks] for i, (_, marks) in enumerate(rows)],
    }
    return pad(sequences, pad_id, values)


def gradients(policy: Policy, batch: Batch, algorithm: Any) -> dict[str, torch.Tensor]:
    """The gradient that an update would apply, by parameter; the weights stay as they are."""
    grads: dict[str, torch.Tensor] = {}

    def catch() -> None:
        for name, parameter in policy.machine.model.named_parameters():
            if parameter.grad is not None:
                grads[name] = parameter.grad.clone()

    before, policy.machine.apply_gradients = policy.machine.apply_gradients, [catch]
    try:
        policy.update(batch, algorithm)
    finally:
        policy.machine.apply_gradients = before
    return grads


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit the same tensors."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
