"""The scalars of TensorBoard's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read_scalars(folder: Path) -> list[dict[str, Any]]:
    """The scalars of all files of events below a folder: for each step, "step" and its values."""
    rows: dict[int, dict[str, Any]] = {}
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0}).Reload()
        for name in events.Tags()["scalars"]:
            for event in events.Scalars(name):
                rows.setdefault(event.step, {"step": event.step})[name] = event.value
    return [rows[step] for step in sorted(rows)]
