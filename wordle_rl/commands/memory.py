"""wordle-rl memory: prints what a run would hold in memory."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from wordle_rl.runs.instantiate import ConfigError

_MOST_COLUMNS = 12
_MACHINES = (16, 24, 48, 80, 141)  # GB of memory that the table compares with


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
    from wordle_rl.backends.memory import describe_free, plan_memory
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
    print(_format_table([" ".join(varied) or "GB" for varied in columns], plans))
    if place != "cuda":
        print(describe_free(max(plan.peak for plan in plans)))


def _format_table(names: Sequence[str], plans: Sequence[Any]) -> str:
    """The plans as a table in GB, each below its name."""
    from dataclasses import replace

    from wordle_rl.backends.memory import CHOSEN, GB, usable
    from wordle_rl.evaluation.boards import columns, tabulate

    def describe_fit(plan: Any, size: int) -> str:
        found = plan.fit(usable(size * GB, plan.device_kind))
        if found is None:
            return "no"
        changes = plan.changes(found).items()
        return ", ".join(CHOSEN[name][1].format(value) for name, value in changes) or "yes"

    cells: list[dict[str, str]] = []
    for plan in plans:
        kept, lean = (replace(plan, checkpointing=each) for each in (False, True))
        figures = {
            **plan.parts,
            "gradients": plan.gradients,
            "keys and values": plan.keys_values(max(plan.games, plan.held_out_games * plan.beams)),
            "activations": kept.activations,
            "activations, checkpointing": lean.activations,
            "logits while learning": plan.logits_learning,
            "peak while playing": plan.peak_playing,
            "peak while learning": kept.peak_learning,
            "the same, checkpointing": lean.peak_learning,
        }
        cells.append(
            {
                "games at once": f"{plan.games:,}",
                "the same outside training": f"{plan.held_out_games:,}",
                "tokens of a game": f"{plan.game.whole:,}",
                **plan.work,
                "tokens of a micro-batch": f"{plan.micro_batch_tokens:,}",
                "bytes of a token's keys, values": f"{plan.sizes.keys_values(plan.size):,}",
                **{name: f"{part / GB:.2f}" for name, part in figures.items()},
                **{f"fits {size} GB": describe_fit(plan, size) for size in _MACHINES},
            }
        )
    rows = ([name, *(plan[name] for plan in cells)] for name in cells[0])
    return tabulate(["", *names], rows, columns())
