"""Times one GRPO step on MLX: ours against mlx-lm-lora's GRPO trainer.

    pip install -c constraints.txt mlx-lm-lora==5.10.2    # not a dependency of the project
    python benchmarks/mlx.py                              # the embedded model micro
    python benchmarks/mlx.py --smoke                      # does it still work?

A step is generation, reward, loss, gradient and update. Both have the same weights, the same
prompts (the opening of a game), and as many prompts and answers. No token ends an answer, so all
answers are equally long. Both train adapters of the same rank on the same layers, with AdamW at
learning rate 0.

Theirs runs train_grpo as its command does, twice: with its defaults (KL to a second copy of the
model, top-p, top-k, four prompts at a time), and with the fastest of several settings. Ours samples
from the whole distribution, once without KL and once with it, to match their defaults.

Contestants take turns. Each runs in two processes. In one, MLX multiplies with its own BLAS, as
mlx-lm-lora does. In the other it uses torch's BLAS, as our training does on Linux.

Tokens are counted where the transformer is called, padding included. mlx-lm-lora has no turns, so
only one answer per prompt is compared.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks._timing import speedup, spread
from wordle_rl.backends import borrow_blas

OURS = {"ours": {"beta": 0.0}, "ours, KL 0.1": {"beta": 0.1}}
DEFAULTS = "mlx-lm-lora, defaults"
TORCHS, OWN = "torch's BLAS", "MLX's BLAS"


def prepare(blas: str) -> None:
    if blas == TORCHS:
        borrow_blas()


def step(name: str, given: argparse.Namespace, number: int, settings: dict[str, Any]) -> Any:
    from benchmarks._mlx import step  # which imports MLX

    return asdict(step(name, given, number, settings))


def process(blas: str) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=prepare, initargs=(blas,))


def measured(
    contestants: dict[str, Any], pools: dict[str, ProcessPoolExecutor], given: Any, repeats: int
) -> dict[tuple[str, str], list[dict[str, float]]]:
    """The steps of each contestant and BLAS, in turns. The first step warms up and is left out."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {
        (name, blas): [] for name in contestants for blas in pools
    }
    for repeat in range(repeats + 1):
        for name, blas in list(found)[:: -1 if repeat % 2 else 1]:
            job = pools[blas].submit(step, name, given, repeat, contestants[name])
            found[name, blas].append(job.result())
    return {key: works[1:] for key, works in found.items()}


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
    contestants: dict[str, Any] = dict(OURS)
    has_theirs = importlib.util.find_spec("mlx_lm_lora") is not None
    if not has_theirs and not given.smoke:
        raise SystemExit("error: install mlx-lm-lora first, see --help")
    pools = {blas: process(blas) for blas in ((TORCHS, OWN) if borrow_blas() else (OWN,))}
    if has_theirs:
        contestants |= {DEFAULTS: {}, **best(pools, given)}
    results = measured(contestants, pools, given, given.repeats)
    for pool in pools.values():
        pool.shutdown()
    report(results, given)
    if given.json:
        named = {f"{name}, {blas}": works for (name, blas), works in results.items()}
        given.json.write_text(json.dumps(named, indent=1))


def best(pools: dict[str, ProcessPoolExecutor], given: Any) -> dict[str, Any]:
    """The fastest of their settings besides the defaults."""
    tried = {
        "mlx-lm-lora, no KL": {"beta": 0.0},
        "mlx-lm-lora, no KL, all at once": {"beta": 0.0, "batch_size": given.prompts},
        "mlx-lm-lora, no KL, no top-k, no top-p": {"beta": 0.0, "top_p": 1.0, "top_k": 0},
    }
    first = measured(tried, {OWN: pools[OWN]}, given, 2)
    spent = {name: min(w["processor"] for w in works) for (name, _), works in first.items()}
    for name, seconds in spent.items():
        print(f"  tried {name}: {seconds:.3f} s of processor time")
    name = min(spent, key=lambda name: spent[name])
    return {name: tried[name]}


def report(results: dict[tuple[str, str], list[dict[str, float]]], given: Any) -> None:
    print(f"{given.prompts} prompts, each with {given.answers} answers of {given.tokens} tokens; "
          f"{os.cpu_count()} cores; medians")  # fmt: skip
    for (name, blas), works in results.items():
        middle = {k: statistics.median(w[k] for w in works) for k in works[0]}
        print(f"{name + ', ' + blas:50} {middle['seconds']:7.3f} s, processor time "
              f"{middle['processor']:.3f} s; tokens forward {middle['forward']:.0f}, "
              f"backward {middle['backward']:.0f}")  # fmt: skip
    for (name, blas), works in results.items():
        for (other, other_blas), others in results.items():
            # Compares ours as it trains with each of theirs, and both with the same BLAS.
            if name in OURS and other not in OURS and blas in (TORCHS, other_blas):
                shares = [
                    spread(speedup([w[k] for w in others], [w[k] for w in works]), 2)
                    for k in ("processor", "seconds")
                ]
                print(f"{name}, {blas} / {other}, {other_blas}: {shares[0]} of the processor time, "
                      f"{shares[1]} of the time")  # fmt: skip


if __name__ == "__main__":
    main()
