"""Reports of real runs in headless Chromium: of one run, and of two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.browser import NEEDS_BROWSER
from wordle_rl import __main__ as command

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def pages(quick_runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of pages on this disk."""
    folder = tmp_path_factory.mktemp("pages")
    of = {
        "report": [str(quick_runs[0])],
        "compare": [str(run) for run in quick_runs],
    }
    for name, arguments in of.items():
        command.run(["report", *arguments, "--output", str(folder / f"{name}.html")])
    return {name: (folder / f"{name}.html").as_uri() for name in of}


@pytest.mark.parametrize("name", ["report", "compare"])
def test_a_report_is_without_fault(open_tab, pages, name):
    open_tab(pages[name]).check(name)


def test_games_of_a_report_are_filtered_in_the_browser(open_tab, pages):
    tab = open_tab(pages["report"])
    form = tab.page.locator("#games-filter")
    form.locator("[name=result]").select_option("gained")
    form.locator("[name=secret]").fill("e")
    shown = tab.page.locator("#games-list li")
    assert shown.count() > 0
    for i in range(shown.count()):
        assert "E" in shown.nth(i).locator("h3").inner_text()
        assert ": lost" in shown.nth(i).inner_text() and ": won in" in shown.nth(i).inner_text()
    tab.check("report-filtered")
