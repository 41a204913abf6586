"""How every picture looks: colours that colour-blind people can tell apart, dark text, whole files.

The colours are by Okabe and Ito (https://jfly.uni-koeln.de/color/). matplotlib is imported late.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordle_rl.runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREEN, PINK, ORANGE = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE)
MARKERS = "osD^v"  # one for each colour, for those who see none
INK, GREY = "#1a1a1a", "#595959"  # text, and lines to compare with
MOST_BANDS = len(COLOURS)  # in one picture
_PANEL_COLUMNS, _PANEL_LETTERS = 3, 40
_DOTS = 150  # dots per inch


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; sizes in inches."""
    # A bare Figure draws with Agg and, unlike pyplot, leaves no state behind in the process.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def new_panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure of small panels with equal axes, for more curves than one picture can show."""
    rows = -(-count // _PANEL_COLUMNS)
    figure = new_figure(9, 1.2 + 2.1 * rows)
    grid = figure.subplots(rows, _PANEL_COLUMNS, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for axes in panels[count:]:
        axes.remove()
    return figure, panels[:count]


def finish_panel(axes: Axes, name: str) -> None:
    """A panel's short title, and labels at the edge of the figure alone."""
    shown = textwrap.shorten(name, _PANEL_LETTERS, placeholder="...")
    axes.set_title(shown, loc="left", fontsize=9, color=INK)
    axes.label_outer()


def name_lines(axes: Axes) -> None:
    """A legend beside the axes, unless nothing has a name."""
    if axes.get_legend_handles_labels()[1]:
        place = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, **place)


def name_panels(figure: Figure, title: str, handles: Sequence[Any], names: Sequence[str]) -> None:
    """The title and one legend for all panels, above them."""
    legend = figure.legend(
        handles, names, loc="outside upper left", ncols=2, frameon=False, fontsize=9,
        labelcolor=INK, title=title, alignment="left",
    )  # fmt: skip
    legend.get_title().set(fontsize=11, fontweight="bold", color=INK)


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


def save_figure(figure: Figure, out: Path, *, small: bool = False) -> None:
    """Write a figure as a PNG, whole or not at all.

    small: with at most 256 colours, which takes a third of the space.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=_DOTS)
    write_bytes(out, _reduce_colours(picture) if small else picture.getvalue())


def _reduce_colours(picture: io.BytesIO) -> bytes:
    from PIL import Image  # which matplotlib needs anyway

    with Image.open(picture) as drawn:
        # By default, quantize() drops the colour of a single thin line.
        octree = Image.Quantize.FASTOCTREE
        few = drawn.convert("RGB").quantize(256, octree, dither=Image.Dither.NONE)
    reduced = io.BytesIO()
    few.save(reduced, format="png", optimize=True)
    return reduced.getvalue()
