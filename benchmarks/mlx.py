"""Times one GRPO step on MLX: ours against mlx-lm-lora's GRPO trainer.

    pip install -c constraints.txt mlx-lm-lora==5.10.2    # not a dependency of the project
    python benchmarks/mlx.py                              # the embedded model micro
    python benchmarks/mlx.py --smoke                      # does it still work?

A step is generation, reward, loss, gradient and update. Both have the same weights, the same
prompts (the opening of a game), and as many prompts and answers. No token ends an answer, so all
answers are equally long. Both train adapters of the same rank on the same layers, with AdamW at
learning rate 0, and multiply with the same BLAS: on Linux with torch's, as our training does.

Theirs runs train_grpo as its command does, twice: with its defaults (KL to a second copy of the
model, top-p, top-k, four prompts at a time), and with the fastest of several settings. Ours samples
from the whole distribution, once without KL and once with it, to match their defaults. mlx-lm-lora
has no turns, so only one answer per prompt is compared. Contestants take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from wordle_rl.backends import borrow_blas

borrow_blas()  # before MLX is imported

import mlx.optimizers
import numpy as np

from benchmarks._timing import alternate, speedup, spread
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.mlx.load import load_model
from wordle_rl.backends.mlx.machine import MlxMachine
from wordle_rl.game.rules import State
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.settings import LoraSettings, ModelSettings
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.talk import Talk
from wordle_rl.training.update import pad

OURS = {"ours": 0.0, "ours, KL 0.1": 0.1}  # beta
DEFAULTS = "mlx-lm-lora, defaults"


def loaded() -> Any:
    settings = ModelSettings(
        name="micro", path="embedded/micro", learning_rate=0.0, max_tokens=8, max_context=512,
        lora=LoraSettings(rank=8, alpha=16.0),
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

    def __init__(self, beta: float, args: argparse.Namespace) -> None:
        self.policy = Policy(MlxMachine(loaded(), optim=Optim(lr=0.0)), max_context=512)
        self.policy.tokenizer._stop_ids = frozenset()
        self.policy.keep_reference()
        self.algorithm = Grpo(beta=beta)
        self.args = args

    def __call__(self, step: int) -> None:
        policy, args = self.policy, self.args
        rows = [prompt for prompt in made_prompts(args.prompts) for _ in range(args.answers)]
        numbers = Draws(seed=0, step=step).uniforms(np.arange(len(rows)), 0, args.tokens)
        completions = policy.engine().complete(rows, Sampling(max_tokens=args.tokens), numbers)
        rewards = np.array([reward(c.ids) for c in completions]).reshape(args.prompts, -1)
        advantages = self.algorithm.compare(rewards).ravel()
        weight = 1.0 / (len(rows) * args.tokens)
        talks, values = [], {"advantages": [], "weights": []}
        for prompt, completion, advantage in zip(rows, completions, advantages, strict=True):
            talk = Talk()
            talk.hear(list(prompt), 0)
            talk.answer(completion.ids, 0, completion.logprobs)
            talks.append(talk)
            values["advantages"].append([advantage * drawn for drawn in talk.trained])
            values["weights"].append([weight * drawn for drawn in talk.trained])
        batch = pad(talks, policy.tokenizer.pad_id, values)
        if self.algorithm.needs.reference:
            batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
        policy.update(batch, self.algorithm)


class Endless:
    """A tokenizer for mlx-lm-lora in which no token ends an answer."""

    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def encode(self, text: str, **_: Any) -> list[int]:
        return []

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def theirs(args: argparse.Namespace, settings: dict[str, Any]) -> float:
    """Seconds of a step of theirs, after one for warming up."""
    from mlx_lm_lora.trainer.grpo_trainer import GRPOTrainingArgs, train_grpo

    ours, ends = loaded(), []
    # They take batch_size prompts at a time, so a whole step is several of their iterations.
    share = args.prompts // settings.get("batch_size", 4)

    def score(completions: list[str], **_: Any) -> list[float]:
        ends.append(time.perf_counter())
        return [reward([int(i) for i in text.split()]) for text in completions]

    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOTrainingArgs(
            iters=2 + share, steps_per_report=10**6, steps_per_save=10**6,
            group_size=args.answers, max_completion_length=args.tokens,
            adapter_file=f"{folder}/adapters.safetensors", **settings,
        )  # fmt: skip
        dataset = [(prompt, [0], "", "") for prompt in made_prompts(args.prompts)]
        sink = io.StringIO()
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            train_grpo(
                model=ours.model, ref_model=loaded().model if settings.get("beta", 0.1) else None,
                tokenizer=Endless(ours.tokenizer.inner), train_dataset=dataset,
                optimizer=mlx.optimizers.AdamW(learning_rate=0.0),
                reward_funcs=[score], args=arguments, end_answer_token="",
            )  # fmt: skip
    return ends[1 + share] - ends[1]  # from a reward to the same place one step later


def best(args: argparse.Namespace) -> dict[str, Any]:
    """The fastest of their settings besides the defaults."""
    choices = {
        "no KL": {"beta": 0.0},
        "no KL, all at once": {"beta": 0.0, "batch_size": args.prompts},
        "no KL, no top-k, no top-p": {"beta": 0.0, "top_p": 1.0, "top_k": 0},
    }
    times = {name: min(theirs(args, choices[name]) for _ in range(2)) for name in choices}
    for name, seconds in times.items():
        print(f"  tried mlx-lm-lora, {name}: {seconds:.3f} s")
    name = min(times, key=lambda name: times[name])
    return {f"mlx-lm-lora, {name}": choices[name]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each contestant")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_args()
    args.prompts, args.answers, args.tokens = (4, 2, 4) if args.smoke else (8, 4, 32)
    args.repeats = 1 if args.smoke else args.repeats
    runs: dict[str, Any] = {name: Ours(beta, args) for name, beta in OURS.items()}
    for run in runs.values():
        run(args.repeats)  # warms up
    others: dict[str, Any] = {}
    if importlib.util.find_spec("mlx_lm_lora") is not None:
        others = {DEFAULTS: {}, **best(args)}
    elif not args.smoke:
        raise SystemExit("error: install mlx-lm-lora first, see --help")
    records: dict[str, list[float]] = {name: [] for name in others}

    def measure(name: str, _: int) -> None:
        records[name].append(theirs(args, others[name]))  # without what a run of theirs prepares

    times = alternate({**runs, **{name: partial(measure, name) for name in others}}, args.repeats)
    times |= records
    print(f"{args.prompts} prompts, each with {args.answers} answers of {args.tokens} tokens")
    for name, values in times.items():
        print(f"{name}: {spread(values, 3)} s a step")
    for name in runs:
        for other in others:
            print(f"{name} over {other}: {spread(speedup(times[name], times[other]))}")


if __name__ == "__main__":
    main()
