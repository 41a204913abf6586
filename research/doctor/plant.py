"""Trains runs with a planted cause of failure, or none, for docs/DOCTOR.md.

    python research/doctor/plant.py <folder> <seeds> <model> [<cause> ...]

Settings are drawn from ranges, by the seed. Runs of odd seeds are the hidden half: their folders
have random names, and <folder>/key.jsonl, which score.py alone reads, says what was planted.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMON = (
    "experiment=study logger=none trainer.agreement=true trainer.games_every=100000 "
    "backend.threads=1 backend.precision=fp32 trainer.checkpoint_every=1000 trainer.steps=10 "
    "trainer.validate_every=14 rollout.groups=5 num_generations=8 words.val=100 words.test=1"
)
MODELS = {
    # spells its guesses freely, so words can be misspelt
    "micro": "model=micro reward=free optim=adamw optim.lr=3e-4 rollout.discount=0.0 "
    "algorithm.scale=none sampling.temperature=1.0 words.allowed_share=0.0 rollout.groups=8",
    # each word is a token, and at this temperature many games are lost
    "mini": "model=mini reward=information optim.lr=2e-3 sampling.temperature=1.6",
}
RATES = {"micro": 3e-4, "mini": 2e-3}  # at which these runs learn
LIBRARIES = (
    "wordle_rl.commands.train",
    "wordle_rl.backends.torch.backend",
    "torch.utils.tensorboard",
    "hydra.core.override_parser.overrides_parser",
)
TEMPERATURES = {"micro": (0.9, 1.0, 1.1), "mini": (1.5, 1.6, 1.7)}
HEALTHY = 4  # runs of each model and seed


def draw(model: str, cause: str, rng: random.Random) -> str:
    """The settings that plant a cause, beside those of the model."""
    rate, factor = RATES[model], 10 ** rng.uniform(-0.2, 0.2)  # 0.6 to 1.6
    name = f"{model}_{cause}"
    match cause.partition(" ")[0]:
        case "healthy":
            algorithm = rng.choice(("grpo", "dr_grpo", "rloo"))
            groups = rng.choice((16, 20) if model == "micro" else (10, 12))
            return (
                f"trainer.steps=14 optim.lr={rate * factor:.2g} algorithm={algorithm} "
                f"rollout.groups={groups} num_generations={rng.choice((6, 8))} "
                f"optim.schedule={rng.choice(('cosine', 'constant'))} "
                f"sampling.temperature={rng.choice(TEMPERATURES[model])}"
            )
        case "rate_high":
            return f"optim.lr={rate * 10 ** rng.uniform(1.5, 2.2):.2g}"
        case "rate_low":
            return f"optim.lr={rate * 10 ** rng.uniform(-4, -2.5):.2g}"
        case "noise":
            return (
                f"rollout.groups=1 num_generations={rng.choice((2, 4))} trainer.steps=30 "
                f"trainer.validate_every=30 optim.lr={rate * rng.uniform(2, 4):.2g}"
            )
        case "no_spread":
            return f"sampling.temperature={rng.uniform(0.01, 0.03):.2g}"
        case "never_wins":
            return f"reward=win_only rules.max_turns=1 optim.lr={rate * factor:.2g}"
        case "unread":
            return f"model=untrained model.seed={rng.randrange(1000)} model.shape.hidden_size=64"
        case "cut":
            return f"model.max_tokens={rng.choice((5, 6, 7)) if model == 'micro' else 1}"
        case "non_words":
            return f"sampling.temperature={rng.uniform(2.0, 3.0):.2g}"
        case "collapse":
            return f"reward=letter_e optim.lr={rate * rng.uniform(5, 10):.2g}"
        case "hacking":
            return f"reward=spoken rollout.discount=1.0 optim.lr={rate * rng.uniform(3, 6):.2g}"
        case "sampler":
            return f"trainer.lag={rng.randint(4, 8)} optim.lr={rate * rng.uniform(5, 10):.2g}"
        case "kl":
            return f"algorithm.beta={10 ** rng.uniform(0.7, 1.5):.2g}"
        case "memorised":
            return (
                f"words.train={rng.choice((4, 6, 8))} words.allowed_share=0.0 "
                f"optim.lr={rate * rng.uniform(2, 4):.2g} trainer.steps=20 "
                "trainer.validate_every=10 rollout.groups=4"
            )
        case "few":
            return f"trainer.steps={rng.randint(2, 5)}"
    raise ValueError(name)


CAUSES = (
    *(f"healthy {number}" for number in range(HEALTHY)),
    *(
        "rate_high",
        "collapse",
        "rate_low",
        "noise",
        "no_spread",
        "never_wins",
        "unread",
        "cut",
        "non_words",
    ),
    *("hacking", "sampler", "kl", "memorised", "few"),
)
NOT_OF_MINI = ("unread", "non_words", "healthy 3")  # whose every answer is a word, and dearer


def train(settings: list[str], log: Path) -> float:
    """Train in a process of its own, which this one has spared the imports. Returns its seconds."""
    if child := os.fork():
        _, status, usage = os.wait4(child, 0)
        with log.open("a") as file:
            file.write(f"\nended with {status}\n")
        return usage.ru_utime + usage.ru_stime
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = 1
    try:
        from wordle_rl.commands.train import train as run
        from wordle_rl.runs.config import compose_config

        run(compose_config("config", settings), settings)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    root = Path(sys.argv[1])
    for module in LIBRARIES:
        import_module(module)  # once, for all runs
    from wordle_rl.runs.config import admit_own

    admit_own([f"--config-dir={HERE / 'own'}"])

    model, causes = sys.argv[3], sys.argv[4:] or CAUSES
    for seed in map(int, sys.argv[2].split(",")):
        for cause in causes:
            if model == "micro" or cause not in NOT_OF_MINI:
                plant(root, model, MODELS[model], cause, seed)


def plant(root: Path, model: str, base: str, cause: str, seed: int) -> None:
    rng = random.Random(f"{model} {cause} {seed}")
    text = draw(model, cause, rng)
    name = f"{model}_{cause.replace(' ', '')}_{seed}"
    place = root / "seen" / name
    key = root / "key.jsonl"
    if seed % 2:
        if key.exists() and f'"{name}"' in key.read_text():
            return
        place = root / "hidden" / secrets.token_hex(4)
    elif place.exists():
        if "ended with 0" in (place / "log").read_text():
            return
        shutil.rmtree(place)
    place.mkdir(parents=True)
    overrides = [*COMMON.split(), *base.split(), *text.split()]
    overrides += [f"seed={rng.randrange(2**31)}", f"output_dir={place}"]
    settings = list({one.partition("=")[0]: one for one in overrides}.values())
    begin = time.monotonic()
    seconds = train(settings, place / "log")
    if seed % 2:
        with key.open("a") as file:
            file.write(json.dumps({"run": place.name, "planted": name}) + "\n")
        print("a hidden run", end=" ")
    else:
        print(name, text, end=" ")
    print(f"{seconds:.0f} s, {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
