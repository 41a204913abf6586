"""How every picture looks: colours that colour-blind people can tell apart, dark text, whole files.

The colours are by Okabe and Ito (https://jfly.uni-koeln.de/color/). matplotlib is imported late.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from wordle_rl.runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREEN, PINK, ORANGE = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE)
MARKERS = "osD^v"  # one for each colour, for those who see none
INK, GREY = "#1a1a1a", "#595959"  # text, and lines to compare with
_DOTS = 150  # dots per inch


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; sizes in inches."""
    # A bare Figure draws with Agg and, unlike pyplot, leaves no state behind in the process.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def name_lines(axes: Axes) -> None:
    """A legend beside the axes, unless nothing has a name."""
    if axes.get_legend_handles_labels()[1]:
        place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, **place)


def label_axes(axes: Axes, title: str, *, x: str = "", y: str = "") -> None:
    """Title and labels in dark text, a faint grid, and no frame at the top and right."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.tick_params(colors=INK)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def count_on_x(axes: Axes) -> None:
    """Whole numbers with thousands separators on the x axis, for steps and games."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def write_caption(figure: Figure, text: str) -> None:
    """A line below all axes: what the bands are, and over how many."""
    figure.supxlabel(text, fontsize=8.5, color=GREY)


def save_figure(figure: Figure, out: Path) -> None:
    """Write a figure as a PNG, whole or not at all.

    With at most 256 colours, which takes a third of the space.
    """
    from PIL import Image  # which matplotlib needs anyway

    picture, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(picture, format="png", dpi=_DOTS)
    with Image.open(picture) as drawn:
        # By default, quantize() drops the colour of a single thin line.
        octree = Image.Quantize.FASTOCTREE
        few = drawn.convert("RGB").quantize(256, octree, dither=Image.Dither.NONE)
    few.save(reduced, format="png", optimize=True)
    write_bytes(out, reduced.getvalue())
