"""Times an update through the layers written out and through transformers', on the same tokens.

    python benchmarks/update.py             # imitation of 16 games, after wordle-rl fetch smollm2
    python benchmarks/update.py model=tiny  # settings of train.py in place of these
    python benchmarks/update.py --smoke     # does it still work? With the embedded model micro

Both compute one row for each distinct beginning of a micro-batch's conversations. All times are
processor time, and the two take turns. Rows are compared with the distinct beginnings of the whole
batch, which a single micro-batch would need, and with the tokens of all conversations.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

# In place of this folder, whose files would hide the packages mlx and trl.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import benchmarks  # noqa: F401  # before torch: it sets how torch's threads wait

# isort: split
from benchmarks._scene import machine
from benchmarks._timing import speedup, spread
from benchmarks.real import seconds
from wordle_rl.backends import load_backend
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.policy.batch import Batch, Blocks
from wordle_rl.policy.optim import Optim
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.settings import Step
from wordle_rl.runs.config import compose_config
from wordle_rl.training.step import learn_step, sample_step

SIZE = ("experiment=imitate", "model=smollm2", "rollout.groups=16")
SMOKE = ("model=micro", "rollout.groups=2", "num_generations=2", "backend.precision=fp32")


class Counting(CausalLM):
    """Keeps how many rows its layers computed."""

    rows = 0

    def _compute_states(self, blocks: Blocks, wanted: Any) -> Any:
        self.rows += len(blocks.tokens)
        return super()._compute_states(blocks, wanted)


class Transformers(Counting):
    """Computes through transformers' layers, whatever is written out."""

    is_fast = False  # pyright: ignore[reportAssignmentType]


def first_update(policy: Any, recipe: Any) -> tuple[Batch, Any]:
    """What the first update of a step learns."""
    form = build_form(recipe.rollout.form, Chat(policy.tokenizer), recipe.style)
    if recipe.algorithm.needs.reference:
        policy.keep_reference()
    step = Step(policy=policy, form=form, recipe=recipe, number=0)
    calls: list[tuple[Batch, Any]] = []
    original = policy.update

    def update(batch: Batch, algorithm: Any) -> dict[str, float]:
        calls.append((batch, algorithm))
        return original(batch, algorithm)

    policy.update = update
    learn_step(step, sample_step(step))
    policy.update = original
    return calls[0]


def count_beginnings(batch: Batch) -> int:
    """Distinct beginnings, up to the token before the last one that is learnt."""
    pairs = zip(batch.ids.tolist(), (batch.lengths - 1).tolist(), strict=True)
    return len({tuple(ids[: n + 1]) for ids, end in pairs for n in range(end)})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="key=value", help="of train.py")
    parser.add_argument("--repeats", type=int, default=5, help="timed updates of each")
    parser.add_argument("--smoke", action="store_true", help="smallest size: does it still work?")
    args = parser.parse_intermixed_args()
    repeats, size = (1, SMOKE) if args.smoke else (args.repeats, args.settings or SIZE)
    setup = build_experiment(resolve(compose_config("config", ["backend=lightning", *size])))
    policy: Any = load_backend(setup.backend).build_policy(
        setup.model, setup.backend, temperature=setup.recipe.scoring_temperature, optim=Optim(lr=0)
    )
    kinds: dict[str, type[CausalLM]] = {
        "layers written out": Counting,
        "transformers' layers": Transformers,
    }
    lm = policy.machine.lm
    lm.__class__ = Counting
    batch, algorithm = first_update(policy, setup.recipe)
    lm.__class__ = Transformers
    policy.update(batch, algorithm)  # warms up
    lm.rows = 0
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(repeats):
        for name in list(kinds)[:: 1 if repeat % 2 else -1]:
            lm.__class__ = kinds[name]
            times[name].append(seconds(lambda: policy.update(batch, algorithm))[0])
    rows, count = lm.rows / (2 * repeats), count_beginnings(batch)
    print(f"{machine('torch', 'transformers')}; {' '.join(size)}")
    print(f"rows computed / distinct beginnings: {rows:.0f} / {count} = {rows / count:.2f}")
    print(f"tokens of the conversations / rows: {int(batch.lengths.sum()) / rows:.2f}")
    for name in kinds:
        print(f"{name}: {spread(times[name], 3)} s an update")
    print(f"written out over transformers': {spread(speedup(*times.values()))}")


if __name__ == "__main__":
    main()
