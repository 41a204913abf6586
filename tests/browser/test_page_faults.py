"""The search for faults in a page's layout finds each kind of them, and nothing where none is."""

from __future__ import annotations

import pytest

from tests.helpers.browser import LAYOUT_FAULTS, LOOKS, NEEDS_BROWSER

pytestmark = [*NEEDS_BROWSER, pytest.mark.parametrize("look", LOOKS[-1:], ids=str)]
SVG = '<svg viewBox="0 0 100 50" style="width: 300px; background: white">{}</svg>'


def faults(open_tab, html):
    tab = open_tab("about:blank")
    tab.page.set_content(f"<body style='margin: 0; background: white'>{html}")
    return tab.page.evaluate(LAYOUT_FAULTS)


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<div style='width: 500px'>wide</div>", "beyond the right edge"),
        ("<pre>" + "long " * 40 + "</pre>", "the page scrolls sideways"),
        ("<div style='width: 4em; overflow: hidden; white-space: nowrap'>a text that is cut</div>",
         "cut"),
        ("<p style='margin: 0'>one text</p><p style='margin: -10px 0'>another text</p>", "overlap"),
        ("<button style='width: 30px'>incomprehensible</button>", "wider than its button"),
        ("<table><tr><td style='max-width: 3em; word-break: break-all'><code>x history=upto4</code>"
         "</table>", "broken within a word"),
        (SVG.format("<text y='20' font-size='2'>tiny</text>"), "small: 6.0 pixels"),
        (SVG.format("<text y='20' fill='#aaaaaa'>pale</text>"), "pale: 2.3"),
        (SVG.format("<text x='90' y='20'>outside</text>"), "cut"),
        (SVG.format("<text y='20'>one</text><text x='5' y='22'>other</text>"), "overlap"),
    ],
)  # fmt: skip
def test_a_fault_is_found(open_tab, html, fault):
    assert any(one.startswith(fault) for one in faults(open_tab, html))


@pytest.mark.parametrize(
    "html",
    [
        "<h1>A title</h1><p>Some text.</p><button>Press</button>",
        "<div style='overflow-x: auto'><pre>" + "long " * 40 + "</pre></div>",
        "<span style='position: absolute; width: 1px; height: 1px; overflow: hidden'>heard</span>",
        "<details><summary>more</summary>hidden</details>",
        SVG.format("<text y='20' font-size='8'>one</text><text y='40' font-size='8'>other</text>"),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(open_tab, html):
    assert faults(open_tab, html) == []
