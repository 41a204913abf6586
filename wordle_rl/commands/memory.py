"""wordle-rl memory: prints what a run would hold in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
import yaml

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF

_MOST_COLUMNS = 12
_NAMES = {"lightning": "torch", "mlx": "MLX"}


def memory(
    settings: Annotated[
        list[str],
        typer.Argument(metavar="key=value", help="as for train.py; several values: a column each"),
    ],
) -> None:
    """Print what a run would hold in memory, for torch and for MLX.

    Takes the settings of train.py, such as model=qwen3b num_generations=2,4,8. Reads the model's
    config.json and none of its weights.
    """
    from wordle_rl.runs.config import compose_config
    from wordle_rl.sweeps.space import format_overrides, list_grid_points, parse_overrides

    space, fixed = parse_overrides(settings)
    columns = {}
    for point in list_grid_points(space):
        varied = format_overrides(point)
        columns[" ".join(varied) or "GB"] = [*fixed, *varied]
    if len(columns) > _MOST_COLUMNS:
        raise ConfigError(
            f"the settings must make {_MOST_COLUMNS} columns or fewer, not {len(columns)}"
        )
    first = compose_config("config", next(iter(columns.values())))
    chosen = first.model.get("backend") or any(s.startswith("backend=") for s in settings)
    keys = {s.partition("=")[0].removeprefix("backend.") for s in settings if "backend." in s}
    known = {name: yaml.safe_load((CONF / f"backend/{name}.yaml").read_text()) for name in _NAMES}
    both = [name for name in _NAMES if keys <= known[name].keys()]
    tables = []
    for more in [[]] if chosen or not both else [[f"backend={name}"] for name in both]:
        configs = [compose_config("config", [*column, *more]) for column in columns.values()]
        tables.append(describe_plans([*columns], configs))
    print("\n\n".join(tables))


def describe_plans(names: Sequence[str], configs: Sequence[Any]) -> str:
    """The table of some composed configs that have one backend, and a line above it."""
    from wordle_rl.backends.memory import describe_free, format_table, plan_memory
    from wordle_rl.commands.build import build_experiment, resolve

    setups = [build_experiment(resolve(cfg)) for cfg in configs]
    backend: Any = setups[0].backend
    place: Any = "mlx" if backend.name == "mlx" else "cuda"
    if getattr(backend, "accelerator", "auto") in ("cpu", "mps"):
        place = backend.accelerator
    precision = backend.precision
    if precision == "auto":
        precision = "fp32" if place == "cpu" else "bf16"
    plans = [plan_memory(setup, place, precision) for setup in setups]
    head = (
        f"memory in GB (10^9 bytes) of model={setups[0].model.name}, {plans[0].parameters:,} "
        f"weights{' in 4 bit' if setups[0].model.quantize else ''}, {plans[0].trained:,} trained "
        f"numbers, on {_NAMES[backend.name]} in {precision} ({place})"
    )
    table = f"{head}\n{format_table(names, plans)}"
    return (
        table if place == "cuda" else f"{table}\n{describe_free(max(plan.peak for plan in plans))}"
    )
