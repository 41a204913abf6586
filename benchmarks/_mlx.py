"""One step of each contestant of benchmarks/mlx.py. Import it only after the BLAS is chosen."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import mlx.optimizers
import numpy as np

from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.mlx.load import load_model
from wordle_rl.backends.mlx.policy import MlxPolicy
from wordle_rl.game.rules import State
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling, uniforms
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.update import pad

LORA = LoraSettings(rank=8, alpha=16.0)


@dataclass
class Work:
    """The cost of a step."""

    seconds: float = 0.0
    processor: float = 0.0  # seconds of all threads of this process, other programs excluded
    forward: float = 0  # tokens through the transformer, in backward passes too
    backward: float = 0  # tokens among them that got a gradient

    def begin(self) -> None:
        self.forward = self.backward = 0
        self._since = time.perf_counter(), time.process_time()

    def end(self) -> None:
        self.seconds = time.perf_counter() - self._since[0]
        self.processor = time.process_time() - self._since[1]


@contextlib.contextmanager
def counted(trunk: Any, work: Work, trains: Callable[[], bool]) -> Iterator[None]:
    """Counts the tokens that go through transformers of this class."""
    real = type(trunk).__call__

    def call(self: Any, ids: Any, *arguments: Any, **named: Any) -> Any:
        work.forward += ids.size
        work.backward += ids.size * bool(trains() and self is trunk)
        return real(self, ids, *arguments, **named)

    type(trunk).__call__ = call
    try:
        yield
    finally:
        type(trunk).__call__ = real


def loaded() -> Any:
    settings = ModelSettings(
        name="micro", path="embedded/micro", learning_rate=0.0, max_tokens=8, max_context=512,
        lora=LORA,
    )  # fmt: skip
    return load_model(settings, precision="fp32")


def reward(ids: list[int]) -> float:
    return float(sum(ids) % 7)


@functools.cache
def made_prompts(count: int) -> list[list[int]]:
    style = Symbols()
    opening = Chat(loaded().tokenizer).opening(style.system, style.opening(State()))
    # One letter differs, so the prompts are equally long but not equal.
    return [[*opening[:-1], 60 + i, opening[-1]] for i in range(count)]


class Ours:
    """Our policy, which takes one step per call."""

    def __init__(self, beta: float) -> None:
        self.policy: Any = MlxPolicy(
            loaded(), temperature=1.0, optim=Optim(lr=0.0), max_context=512,
            micro_batch_tokens=16_384,
        )  # fmt: skip
        self.policy.tokenizer._stop_ids = frozenset()
        self.policy.keep_reference()
        self.algorithm = Grpo(beta=beta)
        self._trains = False
        self._gradient = self.policy._compute_gradient
        self.policy._compute_gradient = self._marked

    def _marked(self, *arguments: Any) -> Any:
        self._trains = True
        try:
            return self._gradient(*arguments)
        finally:
            self._trains = False

    def step(self, given: argparse.Namespace, number: int) -> Work:
        work, prompts = Work(), made_prompts(given.prompts)
        with counted(self.policy.lm._trunk, work, lambda: self._trains):
            work.begin()
            one_step(self.policy, self.algorithm, prompts, given, number)
            work.end()
        return work


def one_step(
    policy: MlxPolicy, algorithm: Grpo, prompts: list[list[int]], given: Any, step: int
) -> None:
    engine = policy.engine()
    rows = [prompt for prompt in prompts for _ in range(given.answers)]
    numbers = uniforms(
        seed=0, step=step, rollouts=np.arange(len(rows)), turn=0, tokens=given.tokens
    )
    drawn = engine.complete(rows, Sampling(max_tokens=given.tokens), numbers)
    rewards = np.array([reward(c.ids) for c in drawn]).reshape(len(prompts), -1)
    advantages = algorithm.compare(rewards).ravel()
    weight = 1.0 / (len(rows) * given.tokens)
    talks, values = [], {"advantages": [], "weights": []}
    for prompt, completion, advantage in zip(rows, drawn, advantages, strict=True):
        talk = Talk()
        talk.hear(list(prompt), 0)
        talk.answer(completion.ids, 0, completion.logprobs)
        talks.append(talk)
        values["advantages"].append([advantage * drawn for drawn in talk.trained])
        values["weights"].append([weight * drawn for drawn in talk.trained])
    batch: Batch = pad(talks, policy.tokenizer.pad_id, values)
    if algorithm.needs_reference:
        batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
    policy.update(batch, algorithm)


class Endless:
    """A tokenizer for mlx-lm-lora in which no token ends an answer."""

    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str, **_: Any) -> list[int]:
        return []

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def theirs(given: argparse.Namespace, **settings: Any) -> Work:
    """A step of theirs, after one for warming up."""
    from mlx_lm_lora.trainer.grpo_trainer import GRPOTrainingArgs, train_grpo

    ours, work, calls = loaded(), Work(), []
    model = ours.model
    reference = loaded().model if settings.get("beta", 0.1) else None
    # They take batch_size prompts at a time, so a whole step is several of their iterations.
    share = given.prompts // settings.get("batch_size", 4)

    def score(completions: list[str], **_: Any) -> list[float]:
        calls.append(completions)
        if len(calls) == 2:  # the warm-up is over
            work.begin()
        elif len(calls) == 2 + share:
            work.end()
            tokens.append((work.forward, work.backward))
        return [reward([int(i) for i in text.split()]) for text in completions]

    tokens: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOTrainingArgs(
            iters=2 + share,
            steps_per_report=10**6,
            steps_per_save=10**6,
            group_size=given.answers,
            max_completion_length=given.tokens,
            adapter_file=f"{folder}/adapters.safetensors",
            **settings,
        )
        dataset = [(prompt, [0], "", "") for prompt in made_prompts(given.prompts)]
        out, err = (
            contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        )  # fmt: skip
        with out, err, counted(model.model, work, lambda: model.training):
            train_grpo(
                model=model, ref_model=reference, tokenizer=Endless(ours.tokenizer.inner),
                optimizer=mlx.optimizers.AdamW(learning_rate=0.0), train_dataset=dataset,
                reward_funcs=[score], args=arguments, end_answer_token="",
            )  # fmt: skip
    [(work.forward, work.backward)] = tokens
    return work


@functools.cache
def _ours(beta: float) -> Ours:
    return Ours(beta)


def step(name: str, given: argparse.Namespace, number: int, settings: dict[str, Any]) -> Work:
    """One step of a contestant. Our policy is kept from step to step."""
    if name.startswith("ours"):
        return _ours(settings["beta"]).step(given, number)
    return theirs(given, **settings)
