"""Bytes that torch's own allocator hands out, and models whose plan is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.helpers.tiny import batch_of, policy_of
from wordle_rl.backends.torch.adapters import add_lora
from wordle_rl.backends.torch.planned_model import PlannedModel
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.memory_plan import GameSize
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import LoraSettings, ModelSettings


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes that the CPU's allocator held during some work, beyond those before it."""
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        work()
    events: Any = profile.kineto_results
    sizes = [
        (event.start_ns(), event.nbytes())
        for event in events.events()
        if event.name() == "[memory]"
    ]
    return int(np.cumsum([size for _, size in sorted(sizes, key=lambda pair: pair[0])]).max())


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of tensors, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


@dataclass(frozen=True, kw_only=True)
class Case:
    """A real policy on a CPU, and the same model without weights."""

    policy: TorchPolicy
    planned: PlannedModel
    optim: Optim


def build_case(
    folder: Path, config: Any, *, precision: Any, lora: bool, optim: str = "adamw"
) -> Case:
    """The model of a config with random weights, and its plan. folder: an empty one."""
    config.save_pretrained(folder)
    (folder / "model.safetensors").touch()  # a plan reads no weights
    form = LoraSettings(rank=8) if lora else None
    settings = ModelSettings(
        name="planned", path=str(folder), learning_rate=1e-3, max_tokens=8, max_context=4096,
        lora=form,
    )  # fmt: skip
    half = lora and precision == "bf16"
    model: Any = AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16 if half else torch.float32
    )
    if form is not None:
        model = add_lora(model, form, 0)
    own = Optim(name=optim, lr=1e-3, clip_grad_norm=0.0)  # pyright: ignore[reportArgumentType]
    policy = policy_of(
        model, precision=precision, max_context=4096, micro_batch_tokens=1, name=optim, lr=1e-3
    )
    planned = PlannedModel(settings, place="cpu", precision=precision)
    return Case(policy=policy, planned=planned, optim=own)


def longest_games(game: GameSize, rows: int, vocabulary: int) -> Batch:
    """Sequences of the planned size that share their opening and train the tokens at their end."""
    generator = np.random.default_rng(0)
    opening = generator.integers(4, vocabulary, game.opening).tolist()
    marks = [0] * (game.whole - game.trained) + [1] * game.trained
    ids = [
        opening + generator.integers(4, vocabulary, game.whole - game.opening).tolist()
        for _ in range(rows)
    ]
    return batch_of([(row, marks) for row in ids], [0.5 - i % 2 for i in range(rows)])


def play_longest(policy: TorchPolicy, game: GameSize, games: int, vocabulary: int) -> Any:
    """Play rows to their planned length: an opening, an answer, a reply, an answer. The engine."""
    answer = (game.whole - game.opening - game.feed) // 2
    engine: Any = policy.engine()
    engine._stop_ids = []  # each answer takes all its tokens
    [first] = engine.open(1)
    engine.extend([first], [list(range(4, 4 + game.opening))])
    rows = [first, *engine.fork(first, games - 1)]
    sampling = Sampling(max_tokens=answer)
    numbers = np.random.default_rng(0).random((games, answer))
    engine.decode(rows, sampling, numbers)
    # The token that was drawn last is fed with the reply. Rows have different lengths, as in play.
    engine.extend(rows, [[4] * (game.feed - 1 - (row > 0)) for row in range(games)])
    engine.decode(rows, sampling, numbers)
    return engine
