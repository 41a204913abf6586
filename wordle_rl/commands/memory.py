"""wordle-rl memory: prints what a run would hold in memory."""

from typing import Annotated, Any

import typer

from wordle_rl.runs.instantiate import ConfigError

_MOST_COLUMNS = 12


def memory(
    settings: Annotated[
        list[str],
        typer.Argument(metavar="key=value", help="as for train.py; several values: a column each"),
    ],
) -> None:
    """Print what a run would hold in memory.

    Takes the settings of train.py, such as model=qwen3b num_generations=2,4,8 or backend=mlx. Reads
    the model's config.json and none of its weights.
    """
    from wordle_rl.backends.memory import describe_free, format_table, plan_memory
    from wordle_rl.commands.build import build_experiment, resolve
    from wordle_rl.runs.config import compose_config
    from wordle_rl.sweeps.space import format_overrides, list_grid_points, parse_overrides

    space, fixed = parse_overrides(settings)
    columns = [format_overrides(point) for point in list_grid_points(space)]
    if len(columns) > _MOST_COLUMNS:
        raise ConfigError(
            f"the settings must make {_MOST_COLUMNS} columns or fewer, not {len(columns)}"
        )
    setups = [
        build_experiment(resolve(compose_config("config", [*fixed, *varied]))) for varied in columns
    ]
    backend: Any = setups[0].backend
    place: Any = "mlx" if backend.name == "mlx" else "cuda"
    if getattr(backend, "accelerator", "auto") in ("cpu", "mps"):
        place = backend.accelerator
    precision = backend.precision
    if precision == "auto":
        precision = "fp32" if place == "cpu" else "bf16"
    plans = [plan_memory(setup, place, precision) for setup in setups]
    print(
        f"memory in GB of model={setups[0].model.name}, {plans[0].parameters:,} "
        f"weights{' in 4 bit' if setups[0].model.quantize else ''}, {plans[0].trained:,} trained "
        f"numbers, on {place} in {precision}"
    )
    print(format_table([" ".join(varied) or "GB" for varied in columns], plans))
    if place != "cuda":
        print(describe_free(max(plan.peak for plan in plans)))
