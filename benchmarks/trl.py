"""Times whole GRPO steps on whole games: ours against TRL's GRPOTrainer at its best settings.

    pip install -c constraints.txt trl==1.16.0      # not a dependency of the project
    python benchmarks/trl.py                        # the embedded model, 512 games (64 secrets x 8)
    python benchmarks/trl.py --model smollm2        # SmolLM2-135M with LoRA, 32 games
    python benchmarks/trl.py --model qwen0.5b-coder --untried --repeats 2   # 16 games, 24 GB
    python benchmarks/trl.py --smoke                # does it still work? Skipped without trl

A step is rollout, reward, loss, gradient and update, with the same weights, secrets, prompts, rules
and rewards on both sides. The loss is GRPO's (arXiv 2402.03300) without KL. First both get the same
finished games in float32: the gradients must agree. Then whole steps are timed inside
TRL's own training loop, one of ours after each of TRL's. The learning rate is 0, so all steps play
with the same weights.

TRL appears twice. "its own generation" does what its tool loop does: a fresh generate call per
turn. "best loop" plays through rollout_func, with the fastest loop over generate that we know of,
which users would have to write themselves. The same run tries batch sizes, attentions and
precisions for TRL, and precisions for ours, and takes the fastest; with --untried, bf16 and sdpa
everywhere. SmolLM2 and Qwen lose all their games, so they get a made-up reward, and their answers
never end early.
"""

from __future__ import annotations

import copy
import gc
import importlib.util
import os
import statistics
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import benchmarks  # noqa: F401  # before torch: it sets how torch's threads wait

# isort: split
import torch
import transformers

from benchmarks._generate import CACHED, GenerateSettings, fastest_generate
from benchmarks._scene import PLAYS, Scene, load_scene, machine, options
from benchmarks._timing import fastest, rates, seconds, speedup, spread
from wordle_rl.backends.torch.devices import DTYPES
from wordle_rl.game.rules import PlayedTurn
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.policy import Policy
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.training.step import train_step

LOSS = ("algorithm.beta=0.0", "rollout.credit=game", "rollout.discount=1.0")
OWN, BEST = "TRL, its own generation", "TRL, best loop"
# Games that TRL computes at once. It keeps all activations: 32 games of SmolLM2 take over 23 GB,
# and 4 of the 0.5B over 19 GB.
MOST_AT_ONCE = {"smollm2": 8, "qwen0.5b-coder": 2}


@dataclass(frozen=True, kw_only=True)
class Vowels:
    """Share of vowels in an answer. It differs between answers even when a model plays nonsense."""

    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        return sum(letter in "aeiou" for letter in turn.text) / max(len(turn.text), 1)


def check_equal(scene: Scene, cap: int) -> None:
    """Stops unless both compute the same gradient from the same games. cap: TRL's at once."""
    from benchmarks._trl import Played, TrlGames, TrlSettings

    policy = scene.policy(copy.deepcopy(scene.network), "fp32", Optim(lr=0.0, clip_grad_norm=0.0))
    ours: dict[str, torch.Tensor] = {}

    def keep_gradient() -> None:
        parameters = policy.machine.model.named_parameters()
        ours.update({name: p.grad.clone() for name, p in parameters if p.grad is not None})

    policy.machine.apply_gradients = [keep_gradient]
    rollouts = train_step(scene.step(policy, 0)).rollouts
    if not ours:
        sys.exit("NOT COMPARED: in every group all rewards are equal; try more --games")
    talks = [talk for rollout in rollouts for talk in rollout.talks]
    games = Played(games=[rollout.game for rollout in rollouts], talks=talks)
    settings = TrlSettings(micro_batch=min(64, cap), weights="float32")
    theirs = TrlGames(scene, settings, steps=1, given=games)
    theirs.run()
    pair = [torch.cat([g[n].double().ravel() for n in ours]) for g in (ours, theirs.gradient)]
    cosine = float(torch.nn.functional.cosine_similarity(*pair, dim=0))
    ratio = float(pair[0].norm() / pair[1].norm())
    print(f"same games in float32: cosine of gradients {cosine:.6f}, ratio of norms {ratio:.4f}")
    if cosine < 0.999 or abs(ratio - 1.0) > 0.01:
        sys.exit("NOT EQUAL: the two do not compute the same loss")


def best_settings(scene: Scene, loop: GenerateSettings, cap: int) -> Any:
    """The fastest TrlSettings: the best precision, then attention, then size up to `cap` games."""
    from benchmarks._trl import TrlGames, TrlSettings

    def try_settings(scene: Scene, settings: TrlSettings) -> float:
        duration = TrlGames(scene, settings, steps=2, loop=loop).run()[1]
        print(f"  tried {scene.games} games, {settings}: {duration:.2f} s", flush=True)
        return duration

    base = TrlSettings(micro_batch=min(max(scene.smaller.games // 4, 8), cap))
    weights: dict[Any, float] = {
        w: try_settings(scene.smaller, replace(base, weights=w))
        for w in ("float32", "autocast", "bfloat16")
    }
    precision = min(weights, key=lambda w: weights[w])
    start = TrlSettings(micro_batch=min(max(scene.games // 4, 8), cap), weights=precision)
    choices = [replace(start, attention=a) for a in ("sdpa", "eager")]
    times = {choice: try_settings(scene, choice) for choice in choices}
    best = min(times, key=lambda choice: times[choice])
    sizes = {min(max(scene.games // n, 8), cap) for n in (1, 2, 8)} - {start.micro_batch}
    choices = [replace(best, micro_batch=n) for n in sorted(sizes)]
    times |= {choice: try_settings(scene, choice) for choice in choices}
    return min(times, key=lambda choice: times[choice])


def faster_precision(scene: Scene) -> Precision:
    """The precision in which our step is faster."""
    scene = scene.smaller
    policies = {p: scene.policy(copy.deepcopy(scene.network), p) for p in DTYPES}

    def run(step: int, *, precision: Precision) -> None:
        train_step(scene.step(policies[precision], step))

    return fastest({p: partial(run, precision=p) for p in DTYPES})


def compare(
    scene: Scene, policy: Policy, settings: Any, loop: GenerateSettings | None, repeats: int
) -> list[dict[str, list[float]]]:
    """Seconds and sampled tokens of our steps and of TRL's, in turns, without the warm-up."""
    from benchmarks._trl import TrlGames

    ours: dict[str, list[float]] = {"seconds": [], "tokens": []}

    def our_step(step: int) -> None:
        result = train_step(scene.step(policy, step))
        ours["tokens"].append(result.metrics["tokens/sampled"])

    def between(step: int) -> None:
        ours["seconds"].append(seconds(our_step, step))

    games = TrlGames(scene, settings, steps=repeats + 1, loop=loop, between=between)
    theirs = {"seconds": games.run(), "tokens": games.tokens}
    return [{key: values[1:] for key, values in run.items()} for run in (ours, theirs)]


def main() -> None:
    args = options(__doc__, tries=True)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # TRL reports its use otherwise
    if importlib.util.find_spec("trl") is None:
        print("skipped: trl is not installed (pip install -c constraints.txt trl==1.16.0)")
        sys.exit(0 if args.smoke else 2)
    from benchmarks._trl import TrlSettings

    transformers.logging.set_verbosity_error()  # each trainer would print TRL's notes
    scene = load_scene(args, *LOSS)
    if args.model not in PLAYS:
        rewards = RewardSet(components={"vowels": Vowels()}, weights={"vowels": 1.0}, lawful=False)
        scene = replace(scene, recipe=replace(scene.recipe, rewards=rewards))
    print(machine("torch", "transformers", "trl"))
    cap = MOST_AT_ONCE.get(args.model, scene.games)
    check_equal(scene, cap)
    gc.collect()  # a trainer refers to itself
    if args.untried:
        loop = replace(CACHED[0], precision="bf16")
        settings, precision = TrlSettings(micro_batch=min(8, cap), weights="bfloat16"), "bf16"
    else:
        print("settings of generate:")
        loop = fastest_generate(scene, CACHED)
        print("settings of TRL:", flush=True)
        settings = best_settings(scene, loop, cap)
        print("precision of ours:")
        precision = faster_precision(scene)
    print(f"chosen: generate {loop}; TRL {settings}; ours {precision}")
    policy = scene.policy(scene.network, precision)
    print(f"\n{args.model}, {scene.games} games a step, {args.repeats} repeats in turns")
    for name, way in ((BEST, loop), (OWN, None)):
        ours, theirs = compare(scene, policy, settings, way, args.repeats)
        for label, run in (("ours", ours), (name, theirs)):
            tokens = statistics.mean(run["tokens"]) / scene.games
            print(
                f"  {label}: {statistics.median(run['seconds']):.2f} s a step, "
                f"{rates(scene.games, run['seconds'])} games/s, {tokens:.1f} sampled tokens a game"
            )
        ratio = speedup(ours["seconds"], theirs["seconds"])
        print(f"  ours over {name}: {spread(ratio)}", flush=True)


if __name__ == "__main__":
    main()
