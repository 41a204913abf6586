"""The table of memory plans: one column per plan, and a row per part and per size of machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wordle_rl.policy.memory_plan import (
    GB,
    MACHINES,
    Linear,
    MemoryPlan,
    Place,
    Playing,
    usable,
)


def _larger(plan: MemoryPlan, part: Callable[[Playing], Linear]) -> int:
    """A part of what rollouts hold, in training or outside it, wherever it is larger."""
    return max(part(plan.playing).at(plan.games), part(plan.held_out).at(plan.held_out_games))


_ROWS: tuple[tuple[str, Callable[[MemoryPlan], float]], ...] = (  # bytes of each part
    ("weights", lambda p: p.kept.weights),
    ("adapters", lambda p: p.kept.adapters),
    ("sums with the base", lambda p: p.kept.sums),
    ("reference", lambda p: p.kept.reference),
    ("optimiser", lambda p: p.kept.optimizer),
    ("gradients", lambda p: p.kept.gradients),
    ("keys and values", lambda p: _larger(p, lambda playing: playing.keys_values)),
    ("logits while playing", lambda p: _larger(p, lambda playing: playing.logits)),
    ("activations", lambda p: p.learning.activations),
    ("activations, checkpointing", lambda p: p.checkpointing.activations),
    ("logits while learning", lambda p: p.learning.logits),
    ("peak while playing", lambda p: p.while_playing),
    ("peak while learning", lambda p: p.while_learning(p.learning)),
    ("the same, checkpointing", lambda p: p.while_learning(p.checkpointing)),
)


def format_table(names: Sequence[str], plans: Sequence[MemoryPlan], place: Place) -> str:
    """The plans as a table in GB, each below its name."""
    rows = [
        ["", *names],
        ["games at once", *(f"{p.games:,}" for p in plans)],
        ["the same outside training", *(f"{p.held_out_games:,}" for p in plans)],
        ["tokens of a game", *(f"{p.game.whole:,}" for p in plans)],
        ["tokens of a micro-batch", *(f"{p.micro_batch_tokens:,}" for p in plans)],
        *([name, *(f"{part(p) / GB:.2f}" for p in plans)] for name, part in _ROWS),
        *([f"fits {size} GB", *(fits(p, size, place) for p in plans)] for size in MACHINES),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def fits(plan: MemoryPlan, size: float, place: Place) -> str:
    """Whether a plan fits into a machine of so many GB, or what must change for it.

    That is gradient checkpointing, or fewer games at once.
    """
    limit = usable(size * GB, place)
    found = (
        (plan.find_games(limit), plan.games),
        (plan.find_held_out_games(limit), plan.held_out_games),
    )
    fewer = [games for games, wanted in found if games < wanted]
    if 0 in fewer or plan.while_learning(plan.checkpointing) > limit:
        return "no"
    parts = [f"{min(fewer)} games" if fewer else "yes"]
    if plan.while_learning(plan.learning) > limit:
        parts.append("checkpointing")
    return ", ".join(parts)
