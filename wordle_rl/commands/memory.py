"""wordle-rl memory: prints what a run would hold in memory."""

from typing import Annotated, Any

import typer

from wordle_rl.runs.instantiate import ConfigError

_MOST_COLUMNS = 12
_GPUS = (16, 24, 48, 80)  # GB of common ones


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
    from wordle_rl.evaluation.boards import columns, tabulate
    from wordle_rl.runs.config import compose_config
    from wordle_rl.sweeps.space import format_overrides, list_grid_points, parse_overrides

    space, base = parse_overrides(settings)
    cases = [format_overrides(point) for point in list_grid_points(space)]
    if len(cases) > _MOST_COLUMNS:
        raise ConfigError(
            f"the settings must make {_MOST_COLUMNS} columns or fewer, not {len(cases)}"
        )
    setups = [build_experiment(resolve(compose_config("config", base + case))) for case in cases]
    backend: Any = setups[0].backend
    device: Any = "mlx" if backend.name == "mlx" else "cuda"
    if getattr(backend, "accelerator", "auto") in ("cpu", "mps"):
        device = backend.accelerator
    precision = backend.precision
    if precision == "auto":
        precision = "fp32" if device == "cpu" else "bf16"
    plans = [plan_memory(setup, device, precision) for setup in setups]
    print(
        f"memory in GB of model={setups[0].model.name}, {plans[0].parameters:,} "
        f"weights{' in 4 bit' if setups[0].model.quantize else ''}, {plans[0].trained:,} trained "
        f"numbers, on {device} in {precision}"
    )
    rows = [
        _describe(plan) | _describe_gpus(plan, setup)
        for plan, setup in zip(plans, setups, strict=True)
    ]
    table = [[name, *(row[name] for row in rows)] for name in rows[0]]
    table = [row for row in table if set(row[1:]) != {"0.00"}]
    print(tabulate(["", *(" ".join(case) or "GB" for case in cases)], table, columns()))
    if device != "cuda":
        print(describe_free(max(plan.peak for plan in plans)))


def _describe(plan: Any) -> dict[str, str]:
    """A plan's column of the table: sizes, then parts and peaks in GB, and the machine it needs."""
    from wordle_rl.backends.memory import GB, find_machine

    figures = {
        **plan.parts,
        "gradients": plan.gradients,
        "keys and values": plan.keys_values(max(plan.games, plan.held_out_games * plan.beams)),
        "peak while playing": plan.peak_playing,
        "peak while learning": plan.peak_learning,
    }
    return {
        "games at once, in validation": f"{plan.games:,}, {plan.held_out_games:,}",
        "tokens of a game, of a micro-batch": f"{plan.longest:,}, {plan.micro_batch_tokens:,}",
        **{name: f"{part / GB:.2f}" for name, part in figures.items()},
        "fits at once on": f"{find_machine(plan, in_parts=False)} GB",
        "fits in parts on": f"{find_machine(plan, in_parts=True)} GB",
    }


def _describe_gpus(plan: Any, setup: Any) -> dict[str, str]:
    """How a run would begin on common GPUs: games at once, and tokens of a micro-batch."""
    from wordle_rl.backends.memory import GB, usable, widen

    if plan.device_kind != "cuda":
        return {}
    column = {}
    for size in _GPUS:
        limit = usable(size * GB, plan.device_kind)
        fit = widen(plan, setup, limit).fit(limit)
        text = "does not fit"
        if fit is not None:
            text = f"{fit.games:,}, {fit.held_out_games:,}, {fit.micro_batch_tokens:,}"
            text += ", layers twice" if fit.checkpointing else ""
        column[f"on {size} GB: games, in validation, tokens"] = text
    return column
