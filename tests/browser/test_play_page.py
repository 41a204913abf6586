"""The page to play in headless Chromium, by keyboard, at two widths and in both colour schemes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.browser import NEEDS_BROWSER, Tab, wait
from tests.helpers.web_page import KNOWLEDGE, choices, make_run
from wordle_rl.evaluation.turn_facts import TurnJudge
from wordle_rl.opponents import Loader
from wordle_rl.web.app import Page
from wordle_rl.web.lobby import Choice, Lobby
from wordle_rl.web.run_view import RunView

pytestmark = NEEDS_BROWSER
# The lower edge of each text in an element.
_BASELINES = """(row) => [...row.querySelectorAll("td")].map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell.querySelector(".word") ?? cell);
    return range.getBoundingClientRect().bottom;
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page that is served in a thread, with solvers, the embedded model mini and a run."""
    import socket

    import uvicorn

    from wordle_rl.web.server import guarded

    mini = Choice(key="mini", label="model mini", load=lambda: Loader().load("model=mini"))
    run = make_run(tmp_path_factory.mktemp("runs"))
    page = Page(Lobby([*choices(), mini]), RunView(run, lambda: TurnJudge(KNOWLEDGE)), "mound")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        app = guarded(page, "token", port)
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/token/"
        server.should_exit = True
        thread.join(10)
        page.models.close()
        page.files.close()


@pytest.fixture
def tab(open_tab: Callable[..., Tab], address: str) -> Tab:
    return open_tab(address)


def secret_of(page: Any) -> str:
    """The secret of the game on the screen, found from the marks of words played."""
    from wordle_rl.game.rules import marks

    left = list(KNOWLEDGE.words.answers)
    for item in page.query_selector_all("#mine li"):
        tiles = item.query_selector_all(".tile")
        seen = [tile.get_attribute("data-mark") for tile in tiles]
        guess = "".join(tile.inner_text().lower() for tile in tiles)
        if all(seen):
            left = [word for word in left if marks(guess, word) == "".join(map(str, seen))]
    return left[0]


def test_a_game_is_played_to_its_win_by_keyboard(tab):
    page = tab.page
    wait(page, "document.querySelectorAll('#mine li').length === 6")
    wait(page, "!document.getElementById('give-up').disabled")
    page.keyboard.type("zzzzz")
    page.keyboard.press("Enter")
    wait(page, "document.getElementById('message').textContent.includes('ZZZZZ')")
    for _ in range(5):
        page.keyboard.press("Backspace")
    for number in range(1, 7):
        page.keyboard.type(secret_of(page) if number > 1 else "crane")
        page.keyboard.press("Enter")
        wait(
            page, f"document.querySelectorAll('#mine li .tile[data-mark]').length === {5 * number}"
        )
        if page.inner_text("#play-result"):
            break
        if number == 1:
            tab.check("play")
    assert page.inner_text("#play-result").startswith("You found ")
    assert page.query_selector("#theirs .tile").inner_text() != ""  # their letters are shown now
    tab.check("play-won")
    page.click("#new")
    wait(page, "!document.getElementById('give-up').disabled")
    for letter in "slate":  # on the screen
        page.click(f"#keys [data-letter={letter}]")
    page.keyboard.press("Enter")
    wait(page, "document.querySelectorAll('#mine .tile[data-mark]').length === 5")


def test_a_model_is_watched_while_it_thinks(tab):
    page = tab.page
    page.select_option("#player", "mini")
    tab.show("watch")
    page.fill("#watch-secret", "mound")
    page.keyboard.press("Enter")
    page.wait_for_selector("#watched .bars tbody tr:nth-child(10)", timeout=60_000)
    page.keyboard.press("ArrowDown")
    wait(page, "document.querySelector('#watched h3 ~ dl') !== null")
    page.wait_for_selector("#watched .bars tbody tr")
    assert "Turn 2" in page.inner_text("#watched")
    assert "place 5" in page.inner_text("#watched .letters").lower()
    tab.check("watch")


def test_two_players_are_compared_on_a_board(tab):
    page = tab.page
    tab.show("board")
    page.fill("#board-rows input", "crane")
    for _ in range(2):  # absent, elsewhere, in place
        page.click("#board-rows fieldset .tile:nth-of-type(4)")
    page.select_option("#rival", "consistent")
    page.click("#board-form button[type=submit]")
    page.wait_for_selector("#asked > div:nth-child(2)")
    assert page.inner_text("#asked").upper().count("MOUND") >= 2
    tab.check("board")


def test_games_are_replayed_and_lead_to_a_board(tab):
    page = tab.page
    tab.show("replay")
    page.wait_for_selector("#replay-list tbody tr:nth-child(4)")
    page.select_option("#replay-won", "no")
    page.click("#replay-form button[type=submit]")
    wait(page, "document.querySelectorAll('#replay-list tbody tr').length === 2")
    page.click("#replay-list tbody button")
    page.wait_for_selector("#replayed .board button:nth-child(1)")
    assert "MOUND: lost" in page.inner_text("#replayed")
    row = page.query_selector("#replay-list tbody tr")
    lines = page.evaluate(_BASELINES, row)
    assert max(lines) - min(lines) <= 4  # a button in a row is level with the text beside it
    tab.check("replay")
    page.click("#replayed li:nth-child(4) button")
    page.click("#replayed p button")
    page.wait_for_selector("#view-board:not([hidden])")
    assert page.input_value("#board-rows input") == "crane"


def test_a_run_is_followed(tab):
    page = tab.page
    tab.show("follow")
    page.wait_for_selector("#follow-curve svg polyline")
    assert "killed, step 60" in page.inner_text("#follow-state")
    assert page.locator("#follow-boards .board").count() == 4
    tab.check("follow")
