"""How a run shows its steps: a line for each, and on a terminal a bar below the lines.

Whatever else is printed while the bar is shown appears above it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from wordle_rl.training.progress import StepLines, describe_step


@contextmanager
def show_steps(first: int, steps: int) -> Iterator[StepLines]:
    """Yields what shows the remaining steps. first: how many of all steps were done before."""
    if not sys.stdout.isatty():
        yield StepLines(steps - first)
        return
    with StepBar(first, steps, Console(highlight=False)) as bar:
        yield bar


class StepBar(StepLines):
    """A line per step, no wider than the terminal, and a bar with the time left below."""

    def __init__(self, first: int, steps: int, console: Console) -> None:
        super().__init__(steps - first)
        self._console = console
        self._bar = Progress(
            TextColumn("step {task.completed} of {task.total}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[left]}"),
            console=console,
            auto_refresh=False,
            expand=True,
            transient=True,
            # Warnings that are written into a file stay out of the terminal.
            redirect_stderr=sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=steps, completed=first, left="")

    def __enter__(self) -> StepBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, number: int, metrics: Mapping[str, float]) -> None:
        left = self.count_step()
        line = describe_step(number, metrics)
        print(textwrap.fill(line, self._console.width, subsequent_indent="  "), flush=True)
        self._bar.update(self._task, completed=number, left=f"{left} left", refresh=True)
