"""Writes docs/METRICS.md from the table of metrics: python -m wordle_rl.metrics [--check]

--check compares and writes nothing.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import textwrap
from collections.abc import Iterable, Sequence

from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.metric_names import OTHER
from wordle_rl.training.metric_table import TABLE, Metric
from wordle_rl.written_page import keep_page

PAGE = ROOT / "docs" / "METRICS.md"
_INTRO = """\
# Metrics

<!-- Written by `make metrics` from wordle_rl/training/metric_table.py. Edit that table. -->

Each curve has two names. `metrics.jsonl` in the run folder has the short one, which is in brackets
here. TensorBoard and Weights & Biases have the long one, sorted by what matters. `<n>` means any
number, and `<part>` any name.

A curve appears in TensorBoard once it has two different values. So a card that is missing was 0, or
the same, all the time. Wins appear anyway. The tab Custom Scalars has charts with several curves,
such as where the time of a step goes. The tab HParams has a row for each finished run.

`python -m wordle_rl.curves` opens TensorBoard with short names for all runs of a folder.
"""
_LAST = f"""\
## {OTHER}

What has no entry in the table, such as the metrics of an algorithm of your own.
"""
_HEADINGS = {"scalar": "", "histogram": "Histograms:", "text": "Texts, in the tab Text:"}


def page(table: Iterable[Metric] = TABLE) -> str:
    """The whole page."""
    groups: dict[str, dict[str, list[Metric]]] = {}
    for metric in table:
        groups.setdefault(metric.group, {}).setdefault(metric.kind, []).append(metric)
    parts = [_INTRO]
    for group, kinds in groups.items():
        parts.append(f"## {group}\n")
        for kind, heading in _HEADINGS.items():
            if kind in kinds:
                parts += [f"{heading}\n"] * bool(heading)
                parts.append("\n".join(map(_item, kinds[kind])) + "\n")
    return "\n".join([*parts, _LAST])


def _item(metric: Metric) -> str:
    text = f"- `{metric.title}` (`{metric.key}`): {metric.meaning}"
    return textwrap.fill(
        text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 1 when --check finds a difference."""
    return keep_page(arguments, "metrics", PAGE, page())


if __name__ == "__main__":
    run_plain(main)
