"""Reports in headless Chromium: of one run, and of two."""

from pathlib import Path

import pytest

from tests.helpers.browser import NEEDS_BROWSER
from tests.helpers.run_folders import BEFORE, make_run
from wordle_rl import __main__ as command

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of pages on this disk."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [make_run(folder, "good"), make_run(folder, "bad", after=BEFORE)]
    of: dict[str, list[Path]] = {"report": runs[:1], "compare": runs}
    for name, chosen in of.items():
        output = str(folder / f"{name}.html")
        command.run(["report", *map(str, chosen), "--output", output])
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
