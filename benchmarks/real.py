"""Times real models: tokens a second, and how much of the machine's matrix rate they reach.

    python benchmarks/real.py           # each model that `wordle-rl fetch` got
    python benchmarks/real.py --smoke   # does it still work? Skipped without one

Rollouts are those of experiment=reinforce without its grammar, the update is that of
experiment=imitate. The rate is that of linear layers with the model's own shapes. All times are
processor time. The work that counts is the least that is necessary: the layers' matrices for each
token, once where conversations begin alike, and the head for each token that is drawn or learnt.
The backward pass doubles it, because the matrices are frozen under an adapter.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import benchmarks  # noqa: F401  # before torch: it sets how torch's threads wait

# isort: split
import torch

from benchmarks._scene import machine
from benchmarks._timing import spread
from wordle_rl.backends import load_backend
from wordle_rl.backends.sizes import Sizes, find_sizes
from wordle_rl.backends.torch.devices import DTYPES, prepare_memory
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.models import fetched_folder
from wordle_rl.policy.optim import Optim
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.settings import Step
from wordle_rl.rollouts.talk import Rollout
from wordle_rl.runs.config import compose_config
from wordle_rl.training.step import learn_step, sample_step

MODELS = ("smollm2", "gemma270m", "qwen0.5b-coder", "qwen1.5b-coder")
ROLLOUTS = ("experiment=reinforce", "sampling.grammar=null", "sampling.repeats=true")
ROWS = 288  # of the linear layers: 24 games x 12 guesses
SMOKE = ("rollout.groups=2", "rules.max_turns=1")


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call, and its result."""
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


def matrix_rate(sizes: Sizes, precision: Precision) -> float:
    """FLOP a second of linear layers with the shapes of one layer's matrices."""
    weights = [torch.randn(o, i).to(DTYPES[precision]) for i, o in sizes.matrices.values()]
    rows = [torch.randn(ROWS, weight.shape[1]).to(weight.dtype) for weight in weights]

    def run() -> None:
        for x, weight in zip(rows, weights, strict=True):
            torch.nn.functional.linear(x, weight)

    run()
    duration = min(seconds(lambda: [run() for _ in range(5)])[0] for _ in range(5)) / 5
    return 2 * ROWS * sizes.weights_in_layers / sizes.layers / duration


def work(sizes: Sizes, rollouts: Sequence[Rollout]) -> tuple[int, float]:
    """Answer tokens, and FLOP of the forward pass that their conversations need at least."""
    talks = sorted((talk for r in rollouts for talk in r.talks), key=lambda talk: talk.ids)
    rows = len(talks[0].ids)
    for before, talk in pairwise(talks):
        prefix = takewhile(lambda pair: pair[0] == pair[1], zip(before.ids, talk.ids, strict=False))
        rows += len(talk.ids) - sum(1 for _ in prefix)
    drawn = sum(sum(map(bool, talk.trained)) for talk in talks)
    return drawn, 2.0 * (rows * sizes.weights_in_layers + drawn * sizes.vocabulary * sizes.hidden)


def measure(name: str, args: argparse.Namespace) -> None:
    playing, learning = (
        build_experiment(resolve(compose_config("config", [f"model={name}", *settings])))
        for settings in ([*ROLLOUTS, *args.few], ["experiment=imitate", *args.few])
    )
    backend, sizes = learning.backend, find_sizes(learning.model)[0]
    prepare_memory(learning.model, "cpu")
    policy = load_backend(backend).build_policy(
        learning.model, backend, temperature=1.0, optim=Optim(lr=0.0)
    )
    results: dict[str, list[tuple[float, float, float]]] = {"rollouts": [], "update": []}
    for number in range(args.repeats):
        for part, recipe in (("rollouts", playing.recipe), ("update", learning.recipe)):
            form = build_form(recipe.rollout.form, Chat(policy.tokenizer), recipe.style)
            step = Step(policy=policy, form=form, recipe=recipe, number=number)
            duration, sample = seconds(lambda step=step: sample_step(step))
            tokens, flop = work(sizes, sample.rollouts)
            if part == "update":
                duration, _ = seconds(lambda step=step, sample=sample: learn_step(step, sample))
                flop *= 2
            rate = matrix_rate(sizes, policy.computing.precision)
            results[part].append((tokens / duration, 100 * flop / duration / rate, rate / 1e9))
    for part, rows in results.items():
        speed, share, rate = (spread(values, 1) for values in zip(*rows, strict=True))
        print(f"{name}, {part}: {speed} answer tokens/s, {share} % of {rate} GFLOP/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, help="one of them (default: all that are there)")
    parser.add_argument("--repeats", type=int, default=3, help="timed steps of each model")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_args()
    names = [name for name in MODELS if (fetched_folder(name) / "config.json").is_file()]
    if args.smoke:
        names, args.repeats = names[:1], 1
    args.few = SMOKE if args.smoke else ()
    if not names:
        print("skipped: no model is there (wordle-rl fetch smollm2)")
        sys.exit(0 if args.smoke else 2)
    print(machine("torch", "transformers"))
    for name in [args.model] if args.model else names:
        measure(name, args)


if __name__ == "__main__":
    main()
