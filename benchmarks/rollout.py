"""Plays the same games with our engine and with loops over `transformers.generate`.

    python benchmarks/rollout.py                  # the embedded model, 512 games (64 secrets x 8)
    python benchmarks/rollout.py --model 100m     # a random Qwen2 of 104 M weights, 64 games
    python benchmarks/rollout.py --model smollm2  # SmolLM2-135M with LoRA, 32 games
    python benchmarks/rollout.py --avx2           # with AVX2 alone, as on an ordinary x86 processor
    python benchmarks/rollout.py --smoke          # does it still work?

The contestants share weights, prompts, rules and the game loop. Only the source of the answers
differs:

- our engine, as training uses it
- generate with a fresh call per turn
- generate with a cache that is kept from turn to turn (see _generate.py)

The same run tries several settings of generate and takes the fastest. Each contestant plays in the
precision in which it is faster, fp32 or bf16, which the same run finds out. First all contestants
play greedily in float32 and must draw the same tokens. Then they are timed in turns.

Timed games are sampled at temperature 1, as in training, so answers differ in length. Each
contestant draws its own random numbers, so the games are similar but not the same. Tokens and turns
per game are printed to show that the work is equal. A model that was not trained for Wordle plays
nonsense. With it no token ends an answer, and every answer has the most tokens: the work is exactly
equal, and equal lengths suit generate best. generate plays with an adapter's sum with its base.

The arithmetic limit is the speed at which these games would be played if only their matrix products
took time. The same run measures how fast this machine multiplies the model's own matrices.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks._generate import CACHED, FRESH, Answers, fastest_generate, generate_games
from benchmarks._scene import Scene, copy_to_play, load_scene, machine, options
from benchmarks._timing import (
    alternate,
    fastest,
    forward_flops,
    matmul_rate,
    operators,
    rates,
    speedup,
    spread,
)  # fmt: skip
from wordle_rl.backends.torch.devices import DTYPES
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk

OURS, FRESH_CALL, BEST = "ours", "fresh call per turn", "cache kept"
AIMS = {
    "tiny": {FRESH_CALL: 5.0, BEST: 2.0},
    "100m": {BEST: 1.0},
    "smollm2": {FRESH_CALL: 3.0, BEST: 3.0},
}


def our_games(policy: TorchPolicy, scene: Scene, sampling: Sampling, step: int) -> list[Talk]:
    player = ModelPlayer(
        engine=policy.engine(), form=scene.form, sampling=sampling,
        draws=Draws(seed=scene.recipe.seed, step=step),
    )  # fmt: skip
    games = new_games(scene.secrets(step), scene.recipe.words, scene.recipe.rules)
    with policy.timers("game"):
        play(player, games)
    return [talk for [talk] in player.all_talks(games)]


def answers_of(talks: list[Talk]) -> Answers:
    return [[talk.ids[part.start : part.stop] for part in talk.answers.values()] for talk in talks]


def check_equal(scene: Scene) -> int:
    """Stop unless all contestants draw the same tokens, greedily in float32. Returns how many."""
    policy = scene.policy(copy.deepcopy(scene.network), "fp32")
    expected = answers_of(our_games(policy, scene, scene.greedy, 0))
    for settings in (*FRESH, *CACHED):
        drawn = generate_games(scene.network, scene, settings, 0, sampling=scene.greedy)
        differing = [i for i, (a, b) in enumerate(zip(expected, drawn, strict=True)) if a != b]
        if differing:
            sys.exit(f"NOT EQUAL: generate ({settings}) and ours differ in games {differing[:10]}")
    return sum(len(ids) for game in expected for ids in game)


def faster_precision(scene: Scene) -> Precision:
    """The precision in which our engine plays faster."""
    scene, sampling = scene.smaller, scene.recipe.sampling
    policies = {p: scene.policy(scene.network, p) for p in DTYPES}
    return fastest({p: partial(our_games, policies[p], scene, sampling) for p in DTYPES})


def contestants(
    scene: Scene, policy: TorchPolicy, work: dict[str, list[tuple[float, float]]]
) -> tuple[dict[str, Callable[[int], object]], dict[str, str]]:
    """The runs to time, and their settings. Each run records its tokens and turns per game."""
    sampling = scene.recipe.sampling

    def recorded(name: str, play_step: Callable[[int], Answers]) -> Callable[[int], object]:
        def run(step: int) -> None:
            games = play_step(step)
            turns = [ids for game in games for ids in game]
            work[name].append((sum(map(len, turns)) / len(games), len(turns) / len(games)))

        return run

    best = {}
    for name, choices in ((FRESH_CALL, FRESH), (BEST, CACHED)):
        print(f"settings of generate, {name}:", flush=True)
        best[name] = fastest_generate(scene, choices)
    runs = {OURS: recorded(OURS, lambda step: answers_of(our_games(policy, scene, sampling, step)))}
    for name, settings in best.items():
        model = copy_to_play(scene.network, settings.precision)
        play_step = partial(generate_games, model, scene, settings, sampling=sampling)
        runs[name] = recorded(name, play_step)
    return runs, {name: str(settings) for name, settings in best.items()}


def arithmetic_limit(
    scene: Scene, talks: list[Talk], precision: Precision, *, seconds: float
) -> dict[str, float]:
    """Games per second if only matrix products took time. seconds: how long to measure."""
    lengths, drawn = [], 0
    for talk in talks:
        # All tokens are fed but the last.
        lengths.append((len(talk.ids) - 1, talk.answers[0].start))
        drawn += sum(talk.trained)
    flops = forward_flops(scene.network, lengths, drawn)
    rate = matmul_rate(scene.network, DTYPES[precision], len(talks), seconds)
    return {
        "flops": flops,
        "flops_per_second": rate,
        "games_per_second": scene.games * rate / flops,
    }


def main() -> None:
    given = options(__doc__)
    scene = load_scene(given)
    found: dict[str, Any] = {"model": given.model, "games": scene.games, "repeats": given.repeats}
    found["machine"] = machine("torch", "transformers")
    print(", ".join(f"{k} {v}" for k, v in found["machine"].items()))
    found["equal_tokens"] = check_equal(scene)
    print(f"equal: {found['equal_tokens']} greedy tokens in float32, by all contestants")

    work: dict[str, list[tuple[float, float]]] = {n: [] for n in (OURS, FRESH_CALL, BEST)}
    print("precision of ours:")
    precision = faster_precision(scene)
    policy = scene.policy(scene.network, precision)
    runs, found["settings"] = contestants(scene, policy, work)
    found["settings"][OURS] = precision
    runs[OURS](0)  # warm up; the others did when their settings were tried
    policy.timers.take()
    taken = alternate(runs, given.repeats)
    parts = policy.timers.take()

    print(f"\n{given.model}, {scene.games} games, {given.repeats} repeats in turns")
    for name, spent in taken.items():
        tokens, turns = (statistics.mean(values) for values in zip(*work[name], strict=True))
        row = {**rates(scene.games, spent), "tokens_per_game": tokens, "turns_per_game": turns}
        found[name] = {**row, "seconds": spent}
        print(
            f"  {name} ({found['settings'][name]}): {spread(row)} games/s; {tokens:.1f} tokens in "
            f"{turns:.2f} turns a game"
        )
    for name in (FRESH_CALL, BEST):
        found[f"over {name}"] = ratio = speedup(taken[OURS], taken[name])
        aim = AIMS.get(given.model, {}).get(name)
        print(f"  ours over {name}: {spread(ratio, 2)}" + (f", aim {aim:g}" if aim else ""))

    whole = sum(taken[OURS])
    found["breakdown"] = {k: v / whole for k, v in parts.items()}
    print("time of ours: " + ", ".join(f"{k} {v / whole:.0%}" for k, v in parts.items()))
    found["operators"] = operators(runs[OURS])
    print("  of it: " + ", ".join(f"{k} {v:.0%}" for k, v in found["operators"].items()))
    talks = our_games(policy, scene, scene.recipe.sampling, 0)
    found["limit"] = limit = arithmetic_limit(
        scene, talks, precision, seconds=0.1 if given.smoke else 1.0
    )
    share = found[OURS]["median"] / limit["games_per_second"]
    print(
        f"arithmetic limit: {limit['games_per_second']:.0f} games/s, {limit['flops'] / 1e9:.1f} "
        f"GFLOP at {limit['flops_per_second'] / 1e9:.0f} GFLOP/s; ours reaches {share:.0%} of it"
    )
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
