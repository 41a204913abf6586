"""Plays the same games with our engine and with loops over `transformers.generate`.

    python benchmarks/rollout.py                  # the embedded model, 512 games (64 secrets x 8)
    python benchmarks/rollout.py --model smollm2  # SmolLM2-135M with LoRA, 32 games
    python benchmarks/rollout.py --smoke          # does it still work?

The contestants share weights, prompts, rules and the game loop. Answers come from our engine, from
a fresh call of generate per turn, or from generate with a cache that is kept from turn to turn (see
_generate.py). The same run tries settings of generate, and fp32 and bf16 for each contestant, and
takes the fastest. First all play greedily in float32 and must draw the same tokens.

Timed games are sampled at temperature 1, so they are similar but not the same: tokens and turns per
game are printed to show that the work is equal. SmolLM2 plays nonsense, so no token ends an answer.
"""

from __future__ import annotations

import copy
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks._generate import CACHED, FRESH, Answers, fastest_generate, generate_games
from benchmarks._scene import Scene, copy_to_play, load_scene, machine, options
from benchmarks._timing import alternate, fastest, rates, speedup, spread
from wordle_rl.backends.torch.devices import DTYPES
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.rollouts.talk import Talk

OURS, FRESH_CALL, BEST = "ours", "fresh call per turn", "cache kept"


def our_games(policy: Policy, scene: Scene, sampling: Sampling, step: int) -> list[Talk]:
    player = ModelPlayer(
        engine=policy.engine(), form=scene.form, sampling=sampling,
        draws=Draws(seed=scene.recipe.seed, step=step),
    )  # fmt: skip
    games = new_games(scene.secrets(step), scene.recipe.words, scene.recipe.rules)
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
        games = [i for i, (a, b) in enumerate(zip(expected, drawn, strict=True)) if a != b]
        if games:
            sys.exit(f"NOT EQUAL: generate ({settings}) and ours differ in games {games[:10]}")
    return sum(len(ids) for game in expected for ids in game)


def faster_precision(scene: Scene) -> Precision:
    """The precision in which our engine plays faster."""
    scene, sampling = scene.smaller, scene.recipe.sampling
    policies = {p: scene.policy(scene.network, p) for p in DTYPES}
    return fastest({p: partial(our_games, policies[p], scene, sampling) for p in DTYPES})


def contestants(
    scene: Scene, policy: Policy, work: dict[str, list[tuple[float, float]]]
) -> tuple[dict[str, Callable[[int], object]], dict[str, str]]:
    """The runs to time, and their settings. Each run records its tokens and turns per game."""
    sampling = scene.recipe.sampling

    def record(name: str, play_step: Callable[[int], Answers]) -> Callable[[int], object]:
        def run(step: int) -> None:
            games = play_step(step)
            turns = [ids for game in games for ids in game]
            work[name].append((sum(map(len, turns)) / len(games), len(turns) / len(games)))

        return run

    best = {}
    for name, choices in ((FRESH_CALL, FRESH), (BEST, CACHED)):
        print(f"settings of generate, {name}:", flush=True)
        best[name] = fastest_generate(scene, choices)
    runs = {OURS: record(OURS, lambda step: answers_of(our_games(policy, scene, sampling, step)))}
    for name, settings in best.items():
        model = copy_to_play(scene.network, settings.precision)
        play_step = partial(generate_games, model, scene, settings, sampling=sampling)
        runs[name] = record(name, play_step)
    return runs, {name: str(settings) for name, settings in best.items()}


def main() -> None:
    args = options(__doc__)
    scene = load_scene(args)
    print(machine("torch", "transformers"))
    print(f"equal: {check_equal(scene)} greedy tokens in float32, by all contestants")
    work: dict[str, list[tuple[float, float]]] = {n: [] for n in (OURS, FRESH_CALL, BEST)}
    print("precision of ours:")
    precision = faster_precision(scene)
    runs, settings = contestants(scene, scene.policy(scene.network, precision), work)
    settings[OURS] = precision
    runs[OURS](0)  # warm up; the others did when their settings were tried
    times = alternate(runs, args.repeats)
    print(f"\n{args.model}, {scene.games} games, {args.repeats} repeats in turns")
    for name, seconds in times.items():
        tokens, turns = (statistics.mean(values) for values in zip(*work[name], strict=True))
        print(
            f"  {name} ({settings[name]}): {rates(scene.games, seconds)} games/s; {tokens:.1f} "
            f"tokens in {turns:.2f} turns a game"
        )
    for name in (FRESH_CALL, BEST):
        print(f"  ours over {name}: {spread(speedup(times[OURS], times[name]))}")


if __name__ == "__main__":
    main()
