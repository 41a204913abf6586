"""Is backend.precision=auto, with backend.threads=auto, as fast as the best choice by hand?

    python benchmarks/precision.py                # the embedded model mini, 128 games
    python benchmarks/precision.py --smoke        # does it still work?

Times a whole training step (rollouts, loss, gradient, optimiser) in both precisions, on one thread
and on all threads. The first part uses the machine as it is, the second runs beside one busy
process. The choices take turns. Auto chooses once at the start of each part, as a run does when it
starts. The time for choosing is printed separately.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import benchmarks  # noqa: F401  # before torch: it sets how torch's threads wait

# isort: split
import torch

from benchmarks._scene import Scene, load_scene, machine, options
from benchmarks._timing import alternate, rates, spread
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.backends.torch.timing import DTYPES, choose_computing, count_cpu_threads
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import LightningSettings
from wordle_rl.training.step import train_step

AIM = 0.15  # how much slower than the best choice auto may be, as a share of its time
Choice = tuple[Precision, int]  # precision and threads

_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # ends with its parent


@contextmanager
def busy_process() -> Iterator[None]:
    """Runs a process that computes all the time, until the block ends."""
    busy = subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def name_of(choice: Choice) -> str:
    precision, threads = choice
    return f"{precision}, {threads} thread{'s' * (threads > 1)}"


def steps(scene: Scene) -> dict[Choice, Callable[[int], object]]:
    """A training step for each choice. All start from the same weights, which never change."""
    optim = Optim(name="muon", lr=0.0)
    policies: dict[Precision, TorchPolicy] = {
        precision: scene.policy(copy.deepcopy(scene.network), precision, optim)
        for precision in DTYPES
    }

    def run(step: int, *, choice: Choice) -> None:
        precision, threads = choice
        torch.set_num_threads(threads)
        train_step(scene.step(policies[precision], step))

    choices = [(p, n) for p in DTYPES for n in sorted({1, count_cpu_threads()})]
    return {choice: partial(run, choice=choice) for choice in choices}


def compare(scene: Scene, runs: dict[Choice, Callable[[int], object]], repeats: int) -> Any:
    """Prints and returns what auto chooses now, and how its time compares with the best choice."""
    begin = time.perf_counter()
    chosen = choose_computing(LightningSettings(), torch.device("cpu"), scene.model)
    choosing = time.perf_counter() - begin
    assert chosen.threads
    auto = chosen.precision, chosen.threads
    print(f"  auto: {name_of(auto)}, chosen in {choosing:.2f} s ({'; '.join(chosen.reasons)})")
    for run in runs.values():  # warm up
        run(0)
    taken = alternate(runs, repeats)
    for choice, spent in taken.items():
        print(f"  {name_of(choice)}: {spread(rates(scene.games, spent))} games/s", flush=True)
    best = min(taken, key=lambda choice: statistics.median(taken[choice]))
    over = statistics.median(taken[auto]) / statistics.median(taken[best])
    verdict = "reached" if over <= 1 + AIM else "MISSED"
    print(
        f"  auto takes {over:.2f} times as long as the best choice ({name_of(best)}), "
        f"aim at most {1 + AIM:.2f}: " + (verdict if repeats >= 5 else "too few repeats to tell")
    )
    return {
        "auto": name_of(auto), "seconds_to_choose": choosing, "reasons": chosen.reasons,
        "seconds": {name_of(c): spent for c, spent in taken.items()}, "over_best": over,
    }  # fmt: skip


def main() -> None:
    given = options(__doc__, model="mini", games=128)
    scene = load_scene(given)
    found: dict[str, Any] = {"model": given.model, "games": scene.games, "repeats": given.repeats}
    found["machine"] = machine("torch")
    print(", ".join(f"{k} {v}" for k, v in found["machine"].items()))
    print(f"{given.model}, {scene.games} games a step, {given.repeats} repeats in turns")
    runs = steps(scene)
    print("as the machine is:", flush=True)
    found["idle"] = compare(scene, runs, given.repeats)
    print("beside one busy process:", flush=True)
    with busy_process():
        found["busy"] = compare(scene, runs, given.repeats)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
