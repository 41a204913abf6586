"""Times training steps of this checkout and of another one: did a change make them slower?

    git worktree add ../before HEAD~1
    python benchmarks/versions.py ../before                # imitation with SmolLM2, 8 games
    python benchmarks/versions.py ../before model=tiny     # settings of train.py in place of these
    python benchmarks/versions.py --smoke                  # does it still work? Against itself

Each checkout has a process of its own, and both run in the same environment. They take turns with
the same step, and the learning rate is 0. A step has two parts: its games, which play or imitate,
and the update. Times are processor time a trained token, because another order of sums may draw
other games. Settings must be known to both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl. A process for another
# checkout starts there, and imports that one's package.
ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = os.getcwd() if "--work" in sys.argv else str(ROOT)

from benchmarks._timing import spread

SETTINGS = ("model=smollm2", "experiment=imitate", "rollout.groups=8")
SMOKE = ("model=micro", "experiment=none", "rollout.groups=2", "num_generations=2")
PARTS = ("games", "update")


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call, and its result. Here, as another checkout may lack it elsewhere."""
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


def work(settings: Sequence[str]) -> None:
    """Answer each number on standard input with the times of that step's parts."""
    from wordle_rl.backends import load_backend
    from wordle_rl.backends.torch.devices import prepare_memory
    from wordle_rl.commands.build import build_experiment, resolve
    from wordle_rl.policy.optim import Optim
    from wordle_rl.rollouts.chat import Chat
    from wordle_rl.rollouts.forms import build_form
    from wordle_rl.rollouts.settings import Step
    from wordle_rl.runs.config import compose_config
    from wordle_rl.training.step import learn_step, sample_step

    setup = build_experiment(resolve(compose_config("config", list(settings))))
    recipe = setup.recipe
    prepare_memory(setup.model, "cpu")
    policy = load_backend(setup.backend).build_policy(
        setup.model, setup.backend, temperature=recipe.sampling.temperature, optim=Optim(lr=0.0)
    )
    form = build_form(recipe.rollout.form, Chat(policy.tokenizer), recipe.style)
    for line in sys.stdin:
        step = Step(policy=policy, form=form, recipe=recipe, number=int(line))
        playing, sample = seconds(lambda step=step: sample_step(step))
        learning, _ = seconds(lambda step=step, sample=sample: learn_step(step, sample))
        tokens = sum(sum(map(bool, t.trained)) for r in sample.rollouts for t in r.talks)
        print(json.dumps({"games": playing, "update": learning, "tokens": tokens}), flush=True)


class Checkout:
    """A process that runs steps of a checkout."""

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        command = [sys.executable, __file__, "--work", *settings]
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def time(self, number: int) -> dict[str, float]:
        """Processor seconds of the parts of a step, each a trained token."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(number, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):  # else it tells of itself
                times = json.loads(line)
                return {part: times[part] / times["tokens"] for part in PARTS}
        sys.exit("a checkout ended with an error, see above")

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, nargs="?", default=ROOT, help="another checkout")
    parser.add_argument("settings", nargs="*", help=f"default: {' '.join(SETTINGS)}")
    parser.add_argument("--repeats", type=int, default=3, help="timed steps of each")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_intermixed_args()
    settings = SMOKE if args.smoke else args.settings or SETTINGS
    repeats = 1 if args.smoke else args.repeats
    checkouts = {"other": Checkout(args.other, settings), "this": Checkout(ROOT, settings)}
    rows = []
    for number in range(-1, repeats):  # the first one warms up
        names = list(checkouts)[:: -1 if number % 2 else 1]
        rows.append({name: checkouts[name].time(max(number, 0)) for name in names})
    for checkout in checkouts.values():
        checkout.close()
    print(" ".join(settings))
    for part in PARTS:
        ratios = [row["other"][part] / row["this"][part] for row in rows[1:]]
        milliseconds = [1e3 * row["this"][part] for row in rows[1:]]
        print(f"  {part}: {spread(milliseconds)} ms a token, {spread(ratios)} times as fast")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
    else:
        main()
