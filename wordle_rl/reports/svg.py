"""Turns matplotlib figures into SVG that a page can hold, and that follows its colours.

Colours are placeholders until they become variables of the page's style sheet, so that one picture
serves light and dark. Styles become classes, because the page's policy refuses style attributes.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#010101", "#020202", "#030303", "#040404"
SERIES = ("#050501", "#050502", "#050503", "#050504", "#050505")
_VARIABLES = {
    INK: "ink", MUTED: "muted", GRID: "line", PAPER: "paper",
    **{colour: f"series{number}" for number, colour in enumerate(SERIES, 1)},
}  # fmt: skip
_COLOUR = re.compile("|".join(_VARIABLES))
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "wordle_rl",  # equal pictures get equal names
    "font.size": 10.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "legend.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "path.simplify_threshold": 0.5,
}
_SPACE = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_FONT = re.compile(r"font: ([\d.]+px)[^;]*")  # size, then families that the page does not use
_REFERENCE = re.compile(r"#([\w-]+)")


@contextmanager
def page_style() -> Iterator[None]:
    """Draw figures for a page in this block."""
    from matplotlib import rc_context

    with rc_context(_SETTINGS):
        yield


@dataclass
class Styles:
    """The styles of a page's pictures, each with its class."""

    names: dict[str, str] = field(default_factory=dict)

    def name(self, style: str) -> str:
        """The class of a style."""
        style = _FONT.sub(r"font-size: \1", style)
        style = _COLOUR.sub(lambda found: f"var(--{_VARIABLES[found[0]]})", style)
        return self.names.setdefault(style, f"v{len(self.names)}")

    @property
    def css(self) -> str:
        """The rules of all classes. None of these texts comes from a run."""
        return "\n".join(f".{name} {{ {style} }}" for style, name in self.names.items())


def to_svg(figure: Figure, styles: Styles, *, key: str, title: str, description: str) -> Markup:
    """A figure as an element of a page.

    key: begins all names in it, so that pictures do not share any. title, description: read out by
    screen readers.
    """
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SPACE)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith("metadata") or child.tag == "style":
                parent.remove(child)
    _rename(root, key)
    for element in root.iter():
        style = element.attrib.pop("style", None)
        if style:
            element.set("class", styles.name(style))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-labelledby": f"{key}-title {key}-text"})
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{key}-{'text' if place else 'title'}"})
        element.text = text
        root.insert(place, element)
    # ElementTree escapes all texts, those from a run included.
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=True))


def _rename(root: ElementTree.Element, key: str) -> None:
    """Give the names that something refers to the key as their beginning, and drop the others."""
    used = set()
    for element in root.iter():
        if link := element.attrib.pop(_LINK, None):
            element.set("href", f"#{key}-{link[1:]}")
            used.add(link[1:])
        for name, value in element.items():
            if name in ("clip-path", "style") and "url(#" in value:
                used.update(_REFERENCE.findall(value[value.index("url(#") :])[:1])
                element.set(name, value.replace("url(#", f"url(#{key}-"))
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", f"{key}-{name}")
