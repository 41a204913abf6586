"""Times two parts of a step: the loss of a trained head, and a draw of tokens.

    python benchmarks/parts.py           # at the sizes of the demo, SmolLM2 and Qwen2.5
    python benchmarks/parts.py --smoke   # does it still work?

The loss in one function is compared with the same loss under autograd, forward and backward pass.
The draw by blocks of the vocabulary is compared with five passes over all of it: temperature,
log-softmax, exponentials, running sum, search. Contestants take turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import benchmarks  # noqa: F401  # before torch: it sets how torch's threads wait

# isort: split
import numpy as np
import torch

from benchmarks._scene import machine
from benchmarks._timing import alternate, speedup, spread
from wordle_rl.backends.tiny_model import build_model
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import draw_tokens
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.token_outputs import LanguageModel, Wanted

VOCABULARIES = {"mini": 13_492, "SmolLM2": 49_152, "Qwen2.5": 151_936}
HIDDEN, TEMPERATURE = 96, 0.7  # mini's, the demo's
SMOKE = {"smallest": 200}


def losses(vocabulary: int, states: int) -> dict[str, Callable[[int], object]]:
    """The loss of some hidden states under a trained head, and its gradient, in both ways."""
    lm: Any = CausalLM(
        build_model(
            vocab_size=vocabulary,
            hidden_size=HIDDEN,
            layers=1,
            heads=1,
            kv_heads=1,
            intermediate_size=8,
        )
    )
    hidden = torch.randn(states, HIDDEN, requires_grad=True)
    ids = np.random.default_rng(0).integers(0, vocabulary, states)
    targets = Wanted(place=np.arange(states), ids=ids, shares=np.ones(states, np.float32))
    factors = torch.randn(states)

    def run(score: Callable[..., Any], _: int) -> None:
        [logprobs] = score(hidden, targets.part(0, states), TEMPERATURE, entropy=False)
        (logprobs @ factors).backward()

    baseline = partial(LanguageModel.score_part, lm)
    return {"one function": partial(run, lm.score_part), "autograd": partial(run, baseline)}


def draws(vocabulary: int, rows: int) -> dict[str, Callable[[int], object]]:
    """A draw of a token for each row, in both ways."""
    chance = np.random.default_rng(0)
    logits = torch.from_numpy(3 * chance.standard_normal((rows, vocabulary), np.float32))
    uniforms = chance.random(rows)
    sampling = Sampling(temperature=TEMPERATURE)

    @torch.inference_mode()
    def five_passes(_: int) -> Any:
        logprobs = (logits / TEMPERATURE).log_softmax(-1)
        sums = logprobs.exp().cumsum(-1)
        target = torch.from_numpy(uniforms).float()[:, None] * sums[:, -1:]
        return logprobs.gather(1, torch.searchsorted(sums, target).clamp(max=vocabulary - 1))

    return {"blocks": lambda _: draw_tokens(logits, sampling, uniforms), "five passes": five_passes}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7, help="timed calls of each way")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_args()
    if args.smoke:
        args.repeats = 1
    sizes = SMOKE if args.smoke else VOCABULARIES
    states = 8 if args.smoke else 1200
    first = next(iter(sizes))
    cases = {f"loss of a trained head, {first}, {states} states": losses(sizes[first], states)}
    for name, vocabulary in sizes.items():
        for rows in (8,) if args.smoke else (48, 288):
            cases[f"draw, {name}, {rows} rows"] = draws(vocabulary, rows)
    print(machine("torch"))
    for name, runs in cases.items():
        alternate(runs, 1)  # warms up
        times = alternate(runs, args.repeats)
        ours, theirs = runs
        ratio = spread(speedup(times[ours], times[theirs]))
        texts = {way: spread([1e3 * second for second in row], 1) for way, row in times.items()}
        text = ", ".join(f"{way} {time}" for way, time in texts.items())
        print(f"{name}, ms: {text}; {ours} over {theirs}: {ratio}", flush=True)


if __name__ == "__main__":
    main()
