"""Prints what a run would hold in memory: python -m wordle_rl.memory_plan [choice=option] ...

Takes the settings of train.py. A setting with several values, such as num_generations=2,4,8, makes
a column for each. Reads the model's config.json and none of its weights.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from wordle_rl.runs.config import compose_from_conf, quoted, run_hydra
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import module_command

_MOST_COLUMNS = 12
_PLAN = "+model.plan_only=true"
_SEVERAL = re.compile(r"([^=]+)=([^,\[\]{}()'\"]+(?:,[^,\[\]{}()'\"]+)+)")
_NAMES = {"lightning": "torch", "mlx": "MLX"}


def print_plans(overrides: Sequence[str]) -> None:
    """Print the plans of these settings, for torch and for MLX."""
    from hydra import compose

    columns = list(spread(overrides))
    if len(columns) > _MOST_COLUMNS:
        raise ConfigError(
            f"the settings must make {_MOST_COLUMNS} columns or fewer, not {len(columns)}"
        )
    with compose_from_conf():

        def compose_all(*more: str) -> list[Any]:
            return [
                compose("config", overrides=[*(quoted(o) for o in (*column, *more)), _PLAN])
                for _, column in columns
            ]

        chosen = any(override.startswith("backend=") for override in overrides)
        configs = compose_all()
        only = chosen or configs[0].model.get("backend") is not None
        groups = [configs] if only else [compose_all(f"backend={b}") for b in _NAMES]
    print(
        "computing plans from config.json alone (model=qwen3b: 15 s of one core)",
        file=sys.stderr,
        flush=True,
    )
    names = [name for name, _ in columns]
    for number, group in enumerate(groups):
        print(("\n" if number else "") + describe_plans(names, group), flush=True)


def spread(overrides: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Every combination of the settings that have several values.

    Yields the name of the combination and its overrides.
    """
    choices = []
    for override in overrides:
        found = _SEVERAL.fullmatch(override)
        key, values = (found[1], found[2].split(",")) if found else ("", [])
        choices.append([f"{key}={value}" for value in values] or [override])
    for combination in itertools.product(*choices):
        varied = [o for o, c in zip(combination, choices, strict=True) if len(c) > 1]
        yield " ".join(varied) or "GB", list(combination)


def describe_plans(names: Sequence[str], configs: Sequence[Any]) -> str:
    """The table of some composed configs that have one backend, and a line above it."""
    from wordle_rl.build import build_experiment, resolve
    from wordle_rl.policy.memory_table import format_table

    setups = [build_experiment(resolve(cfg)) for cfg in configs]
    backend: Any = setups[0].backend
    place = "mlx" if backend.name == "mlx" else "cuda"
    if getattr(backend, "accelerator", "auto") in ("cpu", "mps"):
        place = backend.accelerator
    precision = backend.precision
    if precision == "auto":
        precision = "fp32" if place == "cpu" else "bf16"
    with user_errors():
        from wordle_rl.backends.torch.memory_plan import Planner

        models: dict[str, Any] = {}
        plans = []
        for setup in setups:
            planner = Planner(setup, place, precision, models.get(repr(setup.model)))
            models[repr(setup.model)] = planner.model
            plans.append(planner.plan(compare=True))
    kept = plans[0].kept
    head = (
        f"memory in GB (10^9 bytes) of model={setups[0].model.name}, {kept.parameters:,} weights"
        f"{' in 4 bit' if setups[0].model.quantize else ''}, {kept.trained:,} trained numbers, on "
        f"{_NAMES[backend.name]} in {precision} ({place})"
    )
    return f"{head}\n{format_table(names, plans, place)}"


def main() -> None:
    overrides = sys.argv[1:]
    if {"-h", "--help"} & set(overrides):
        called = "python -m wordle_rl.memory_plan"
        print((__doc__ or "").replace(called, module_command("memory_plan")))
        return

    def run() -> None:
        with user_errors():
            print_plans(overrides)

    run_hydra(run)


if __name__ == "__main__":
    main()
