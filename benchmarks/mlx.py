"""Times one GRPO step on MLX, ours against mlx-lm-lora's GRPO trainer.

    pip install -c constraints.txt mlx-lm-lora==5.10.2    # not a dependency of the project
    python benchmarks/mlx.py                              # the embedded model micro
    python benchmarks/mlx.py --smoke                      # does it still work?

The same weights, prompts (the opening of a game), numbers of prompts and answers, and answers of
the same length, since no token ends one. Theirs runs train_grpo as its command does: once with its
defaults (KL to a second copy of the model, top-p, top-k, four prompts at a time), once with the
fastest of the settings that are tried in the same run. Ours samples from the whole
distribution, without KL and, for the defaults' sake, with it. Adapters of the same rank on the same
layers; AdamW at learning rate 0. A step is generation, reward, loss, gradient and update.

Tokens are counted where the transformer is called, padding included. Only one answer per prompt is
compared: mlx-lm-lora has no turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import mlx.core as mx
import mlx.optimizers
import numpy as np

from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.mlx_models import load
from wordle_rl.backends.mlx_policy import MlxPolicy
from wordle_rl.chat import Chat
from wordle_rl.game import State
from wordle_rl.optim import Optim
from wordle_rl.prompts import Symbols
from wordle_rl.records import Batch, Sequence, pad
from wordle_rl.sampling import Sampling, uniforms
from wordle_rl.settings import LoraSettings, ModelSettings

LORA = LoraSettings(rank=8, alpha=16.0)


@dataclass
class Work:
    """What a step costs."""

    seconds: list[float] = field(default_factory=list)
    forward: int = 0  # tokens through the transformer, backward passes' own ones included
    backward: int = 0  # of these, how many came back

    def said(self, steps: int) -> dict[str, float]:
        return {
            "seconds": statistics.median(self.seconds),
            "least": min(self.seconds),
            "most": max(self.seconds),
            "forward_tokens": self.forward / steps,
            "backward_tokens": self.backward / steps,
        }


@contextlib.contextmanager
def counted(trunk: Any, work: Work, trains: Callable[[], bool]) -> Iterator[None]:
    """Count the tokens that go through a kind of transformer."""
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
    return load(settings, precision="fp32")


def reward(ids: list[int]) -> float:
    return float(sum(ids) % 7)


def ours(prompts: list[list[int]], given: argparse.Namespace, *, beta: float) -> dict[str, float]:
    policy = MlxPolicy(
        loaded(), temperature=1.0, optim=Optim(lr=0.0), compiled=False, max_context=512,
        micro_batch_tokens=16_384,
    )  # fmt: skip
    policy.tokenizer._stop_ids = frozenset()
    policy.keep_reference()
    work, algorithm = Work(), Grpo(beta=beta)
    training = [False]
    real = policy._gradient

    def gradient(*arguments: Any) -> Any:
        training[0] = True
        try:
            return real(*arguments)
        finally:
            training[0] = False

    policy._gradient = gradient
    for step in range(given.repeats + 1):
        if step == 1:
            work = Work()
        with counted(policy.lm._trunk, work, lambda: training[0]):
            begin = time.perf_counter()
            one_step(policy, algorithm, prompts, given, step)
            work.seconds.append(time.perf_counter() - begin)
    return work.said(given.repeats)


def one_step(
    policy: MlxPolicy, algorithm: Grpo, prompts: list[list[int]], given: Any, step: int
) -> None:
    engine = policy.engine()
    first = engine.open(len(prompts))
    engine.extend(first, prompts)
    rows = [r for row in first for r in (row, *engine.fork(row, given.answers - 1))]
    numbers = uniforms(
        seed=0, step=step, rollouts=np.arange(len(rows)), turn=0, tokens=given.tokens
    )
    drawn = engine.decode(rows, Sampling(max_tokens=given.tokens), numbers)
    rewards = np.array([reward(c.ids) for c in drawn]).reshape(len(prompts), -1)
    advantages = algorithm.advantages_by_game(rewards).ravel()
    weight = 1.0 / (len(rows) * given.tokens)
    sequences, values = [], {"advantages": [], "weights": []}
    for i, (completion, advantage) in enumerate(zip(drawn, advantages, strict=True)):
        prompt = prompts[i // given.answers]
        marks = [0.0] * len(prompt) + [1.0] * len(completion.ids)
        sequences.append(
            Sequence(
                ids=[*prompt, *completion.ids],
                trained=[bool(m) for m in marks],
                sampler_logprobs=[0.0] * len(prompt) + completion.logprobs,
                turns=[0] * len(marks),
                rollout=i,
            )
        )
        values["advantages"].append([advantage * m for m in marks])
        values["weights"].append([weight * m for m in marks])
    batch: Batch = pad(sequences, values, policy.tokenizer.pad_id)
    if algorithm.needs_reference:
        batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
    policy.update(batch, algorithm)


class Endless:
    """A tokenizer for mlx-lm-lora that knows no end of an answer."""

    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str, **_: Any) -> list[int]:
        return []

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def theirs(
    prompts: list[list[int]], given: argparse.Namespace, **settings: Any
) -> dict[str, float]:
    from mlx_lm_lora.trainer.grpo_trainer import GRPOTrainingArgs, train_grpo

    ours, work, times = loaded(), Work(), []
    model = ours.model
    reference = loaded().model if settings.get("beta", 0.1) else None

    def score(completions: list[str], **_: Any) -> list[float]:
        times.append(time.perf_counter())
        if len(times) == 2:  # from here on steps are whole
            work.forward = work.backward = 0
        return [reward([int(i) for i in text.split()]) for text in completions]

    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOTrainingArgs(
            iters=given.repeats + 2,
            steps_per_report=10**6,
            steps_per_save=10**6,
            group_size=given.answers,
            max_completion_length=given.tokens,
            adapter_file=f"{folder}/adapters.safetensors",
            **settings,
        )
        dataset = [(prompt, [0], "", "") for prompt in prompts]
        out, err = (
            contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        )  # fmt: skip
        with out, err, counted(model.model, work, lambda: model.training):
            train_grpo(
                model=model, ref_model=reference, tokenizer=Endless(ours.tokenizer.inner),
                optimizer=mlx.optimizers.AdamW(learning_rate=0.0), train_dataset=dataset,
                reward_funcs=[score], args=arguments, end_answer_token="",
            )  # fmt: skip
    # A step of theirs takes as many prompts as its batch size: a whole one is several of those.
    share = len(prompts) / arguments.batch_size
    work.seconds = [(b - a) * share for a, b in itertools.pairwise(times[1:])]
    said = work.said(len(work.seconds) + 1)
    return {k: v * (share if k.endswith("tokens") else 1.0) for k, v in said.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=8, help="a multiple of 4")
    parser.add_argument("--answers", type=int, default=4, help="per prompt")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each contestant")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    given = parser.parse_args()
    if given.smoke:
        given.prompts, given.answers, given.tokens, given.repeats = 4, 2, 4, 1
    style = Symbols()
    opening = Chat(loaded().tokenizer).opening(style.system, style.opening(State()))
    # The last letters differ, so that prompts are as long as each other but not the same.
    prompts = [[*opening[:-1], 60 + i, opening[-1]] for i in range(given.prompts)]
    results = {
        "ours": ours(prompts, given, beta=0.0),
        "ours, KL 0.1": ours(prompts, given, beta=0.1),
    }
    if importlib.util.find_spec("mlx_lm_lora") is not None:
        results["mlx-lm-lora, defaults"] = theirs(prompts, given)
        tried = {"no KL": {}, "no KL, all prompts at once": {"batch_size": given.prompts}}
        tried["no KL, nor top-k and top-p"] = {"top_p": 1.0, "top_k": 0}
        runs = {name: theirs(prompts, given, beta=0.0, **more) for name, more in tried.items()}
        for name, run in runs.items():
            print(f"  tried: {name}: {run['seconds']:.3f} s")
        best = min(runs, key=lambda name: runs[name]["seconds"])
        results[f"mlx-lm-lora, {best}"] = runs[best]
    elif not given.smoke:
        raise SystemExit("error: install mlx-lm-lora first, see --help")
    print(f"{given.prompts} prompts of {len(prompts[0])} tokens, {given.answers} answers each of "
          f"{given.tokens}; {mx.default_device()}, {os.cpu_count()} cores")  # fmt: skip
    for name, r in results.items():
        tokens = f"tokens forward {r['forward_tokens']:.0f}, backward {r['backward_tokens']:.0f}"
        print(f"{name:40} {r['seconds']:7.3f} s ({r['least']:.3f} to {r['most']:.3f}), {tokens}")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
