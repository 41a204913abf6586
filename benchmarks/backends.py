"""Times one GRPO step of the same model on both backends of this machine: torch against MLX.

    python benchmarks/backends.py                     # the embedded model tiny, 64 games a step
    python benchmarks/backends.py model=gemma4b-mlx backend.precision=bf16 rollout.groups=1
    python benchmarks/backends.py --smoke             # does it still work?

A step is train.py's own: games, rewards, advantages, gradient, update. Both backends load the same
weights and play with the same random numbers, at learning rate 0, so that all steps do the same
work: in fp32 the same games up to rounding. Steps take turns. On Apple silicon MLX computes on
Metal and torch on MPS; on Linux both compute on the CPU, MLX with its CPU build, each on one
thread unless OMP_NUM_THREADS says more: beside other programs, threads wait for each other. More
settings of train.py that both backends know may follow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

THREADS = os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

from wordle_rl.backends import borrow_blas

borrow_blas()  # before MLX is imported

from benchmarks._timing import alternate, speedup, spread
from wordle_rl.backends import load_backend
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.optim import Optim
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.settings import Step
from wordle_rl.runs.config import compose_config
from wordle_rl.training.step import train_step

BACKENDS = {"torch": ["backend=lightning", f"backend.threads={THREADS}"], "mlx": ["backend=mlx"]}
SIZE = ("model=tiny", "rollout.groups=8", "num_generations=8", "backend.precision=fp32")
SMOKE = ("model=micro", "rollout.groups=2", "num_generations=2", "backend.precision=fp32")


class Trainer:
    """One backend with its policy, which takes one step per call."""

    def __init__(self, settings: Sequence[str]) -> None:
        config = compose_config("config", settings)
        setup = build_experiment(resolve(config))
        recipe = setup.recipe
        self.policy: Any = load_backend(setup.backend).build_policy(
            setup.model, setup.backend, temperature=recipe.scoring_temperature, optim=Optim(lr=0.0)
        )
        self.form = build_form(recipe.rollout.form, Chat(self.policy.tokenizer), recipe.style)
        self.recipe, self.tokens, self.wins = recipe, list[float](), list[float]()
        if recipe.algorithm.needs.reference:
            self.policy.keep_reference()

    def __call__(self, number: int) -> None:
        step = Step(policy=self.policy, form=self.form, recipe=self.recipe, number=number)
        metrics = train_step(step).metrics
        self.tokens.append(metrics["tokens/sampled"])
        self.wins.append(metrics["train/wins"])


def describe_devices() -> str:
    """Where the two compute."""
    import mlx.core as mx
    import torch

    torch_device = "mps" if torch.backends.mps.is_available() else "cpu"
    torch_device = "cuda" if torch.cuda.is_available() else torch_device
    metal = "metal" if mx.metal.is_available() else "cpu"
    places = f"torch {torch.__version__} on {torch_device}, mlx {version('mlx')} on {metal}"
    return f"{places}, {THREADS} CPU threads each"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="key=value", help="of train.py")
    parser.add_argument("--repeats", type=int, default=5, help="timed steps of each backend")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_intermixed_args()
    repeats, size = (1, SMOKE) if args.smoke else (args.repeats, SIZE)
    trainers = {name: Trainer([*base, *size, *args.settings]) for name, base in BACKENDS.items()}
    for trainer in trainers.values():
        trainer(repeats)  # warms up
        trainer.tokens.clear()
        trainer.wins.clear()
    times = alternate(trainers, repeats)
    print(f"{describe_devices()}; {' '.join([*size, *args.settings])}")
    for name, trainer in trainers.items():
        tokens, wins = statistics.mean(trainer.tokens), statistics.mean(trainer.wins)
        work = f"{tokens:.0f} tokens and {wins:.1f} wins in a step"
        print(f"{name}: {spread(times[name], 3)} s a step, {work}")
    print(f"mlx over torch: {spread(speedup(times['mlx'], times['torch']))}")


if __name__ == "__main__":
    main()
