"""README and docs/ as a browser shows their Markdown, in a plain style."""

import re

from markdown_it import MarkdownIt

from tests.helpers.browser import NEEDS_BROWSER
from wordle_rl.runs.paths import ROOT

pytestmark = NEEDS_BROWSER
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STYLE = """
:root { color-scheme: light dark; } body { font: 16px/1.5 sans-serif; overflow-wrap: anywhere; }
pre, table { display: block; overflow-x: auto; } img { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) {
  html { background: #121418; color: #eceef2; } a { color: #8ab4f8; }
}
"""
HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content='


def test_the_pages_are_without_fault(open_tab, tmp_path):
    faults = []
    for path in PAGES:
        text = MarkdownIt("commonmark", {"html": True}).enable("table").render(path.read_text())
        text = re.sub(
            r'(src|srcset)="(?!https?:)([^"]*)"', rf'\\1="{path.parent.as_uri()}/\\2"', text
        )
        text = re.sub(
            "<(pre|table)>", r'<\1 tabindex="0">', text
        )  # what scrolls is reached by keys
        page = tmp_path / f"{path.stem}.html"
        page.write_text(
            f'{HEAD}"width=device-width"><title>{path.stem}</title><style>{STYLE}</style>'
            f"<main>{text}</main></html>"
        )
        tab = open_tab(page.as_uri())
        try:
            tab.check(path.name)
        except AssertionError as error:
            faults.append(str(error))
        tab.page.context.close()
    assert not faults, "\n".join(faults)
