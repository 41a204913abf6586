"""How every picture looks: colours that colour-blind people can tell apart, and dark text.

The colours are by Okabe and Ito (https://jfly.uni-koeln.de/color/).
"""

import io
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import write_bytes

BLUE, RED, GREEN, PINK, ORANGE = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE)
MARKERS = "osD^v"  # one for each colour, for those who see none
INK, GREY = "#1a1a1a", "#595959"  # text, and lines to compare with
_DOTS = 150  # dots per inch


def new_figure(width: float, height: float) -> Any:
    """An empty Figure of matplotlib, which is loaded when one is drawn; sizes in inches."""
    from matplotlib.figure import Figure

    # A bare Figure draws with Agg and, unlike pyplot, leaves no state behind in the process.
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, out: Path) -> None:
    """Write a figure as PNG, SVG or PDF by the ending of its name, whole or not at all."""
    picture = io.BytesIO()
    figure.savefig(picture, format=out.suffix[1:].lower(), dpi=_DOTS)
    write_bytes(out, picture.getvalue())
