"""Reports in headless Chromium: of one run, and of two."""

from pathlib import Path

import pytest

from tests.helpers.browser import NEEDS_BROWSER
from tests.helpers.run_folders import BEFORE, GROUP, make_run
from wordle_rl import __main__ as command
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder

pytestmark = NEEDS_BROWSER
SECONDS = 600  # until the page of a run opens itself anew, so that axe has the time it needs


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of pages on this disk."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [make_run(folder, "good"), make_run(folder, "bad", after=BEFORE)]
    live_run = make_run(folder, "live", status="running")
    (live_run / "summary.json").unlink()
    for run in (runs[0], live_run):
        StepLog(run / "groups.jsonl").append(40, GROUP)
        log = StepLog(run / "metrics.jsonl")
        for step in range(41, 50):
            log.append(step, {"policy/sampler_gap": 0.5})  # which the page tells
    runs_by_page: dict[str, list[Path]] = {"report": runs[:1], "compare": runs, "live": [live_run]}
    with RunFolder(live_run).lock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("wordle_rl.reports.page._SECONDS", SECONDS)
        for name, folders in runs_by_page.items():
            output = str(folder / f"{name}.html")
            command.run(["report", *map(str, folders), "--output", output])
    return {name: (folder / f"{name}.html").as_uri() for name in runs_by_page}


@pytest.mark.parametrize("name", ["report", "compare", "live"])
def test_a_report_is_without_fault(open_tab, pages, name):
    tab = open_tab(pages[name])
    for details in tab.page.query_selector_all("details"):
        details.evaluate("one => { one.open = true; }")
    tab.check(name)


def test_a_page_opens_itself_anew_until_somebody_wants_it_to_stay(open_tab, pages):
    page = open_tab(pages["live"]).page
    script = "document.documentElement.dataset.seen = 1"
    page.clock.install()
    page.reload()
    page.evaluate(script)
    page.clock.run_for(500 * SECONDS)  # time also flows by itself
    assert page.evaluate("document.documentElement.dataset.seen") == "1"
    page.click("#live-stop")
    page.clock.run_for(3000 * SECONDS)
    assert page.evaluate("document.documentElement.dataset.seen") == "1"
    assert not page.is_visible("#live-stop")
    page.reload()
    page.evaluate(script)
    with page.expect_navigation():
        page.clock.run_for(1000 * (SECONDS + 1))
    assert page.evaluate("document.documentElement.dataset.seen") is None


def test_games_of_a_report_are_filtered_in_the_browser(open_tab, pages):
    tab = open_tab(pages["report"])
    form = tab.page.locator("#games-filter")
    form.locator("[name=result]").select_option("gained")
    form.locator("[name=secret]").fill("e")
    games = tab.page.locator("#games-list li")
    assert games.count() > 0
    for i in range(games.count()):
        assert "E" in games.nth(i).locator("h3").inner_text()
        assert ": lost" in games.nth(i).inner_text() and ": won in" in games.nth(i).inner_text()
    tab.check("report-filtered")
