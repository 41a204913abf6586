"""The page to play in headless Chromium, by keyboard, at two widths and in both colour schemes."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.browser import NEEDS_BROWSER, Tab
from tests.helpers.web_page import KNOWLEDGE, load, opponent_of
from wordle_rl.commands.play import load_opponent
from wordle_rl.game.players import GreedyEntropy
from wordle_rl.game.rules import Game, marks
from wordle_rl.policy.sampling import Draws
from wordle_rl.rollouts.teacher import ScriptedPlayer
from wordle_rl.web.opponent import Choice, Opponent
from wordle_rl.web.server import Page, build_app

pytestmark = NEEDS_BROWSER
THOUGHT = "<think><img src=x onerror=alert(1)> &amp; <b>bold</b></think>"


@contextmanager
def served_page(page: Page) -> Iterator[str]:
    """Serve a page in a thread, and yield its address."""
    import uvicorn

    config = uvicorn.Config(build_app(page), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(10)
    page.close()


def wait(page: Any, condition: str) -> None:
    """Wait until an expression is true."""
    end = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"never true: {condition}"
        page.wait_for_timeout(30)


class Thinker(ScriptedPlayer):
    """Writes a thought that would be HTML if the page let it."""

    def __call__(self, games: Mapping[int, Game], turn: int) -> None:
        for game in games.values():
            game.play("crane", text=f"{THOUGHT}<guess>crane</guess>", thought=THOUGHT)


def thinker() -> Opponent:
    player = GreedyEntropy(KNOWLEDGE, opener="crane")
    return replace(opponent_of(player), seat=lambda: Thinker(player=player, draws=Draws(seed=0)))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A page that is served in a thread, with solvers, the embedded model mini and a thinker."""

    def load_any(player: str) -> Opponent:
        if player == "mini":
            return load_opponent(model="mini")
        return thinker() if player == "thinker" else load(player)

    choices = {
        key: Choice(label=f"the {key} one", settings={"player": key})
        for key in ("entropy", "consistent", "mini", "thinker")
    }
    with served_page(Page(choices, load_any)) as address:
        yield address


@pytest.fixture
def tab(open_tab: Callable[..., Tab], address: str) -> Tab:
    """The page as it opens: with a secret to type."""
    tab = open_tab(address)
    wait(tab.page, "document.activeElement.id === 'watch-secret'")
    return tab


def titles(page: Any) -> list[str]:
    """What stands above the games that are watched."""
    return [head.inner_text() for head in page.query_selector_all("#watched > :first-child h3")]


def type_guesses(page: Any, guesses: Sequence[str]) -> None:
    wait(page, "!document.getElementById('give-up').disabled")
    for number, guess in enumerate(guesses, 1):
        page.keyboard.type(guess)
        page.keyboard.press("Enter")
        wait(
            page, f"document.querySelectorAll('#mine li .tile[data-mark]').length === {5 * number}"
        )


def secrets_left(page: Any) -> list[str]:
    """The words that fit the marks on the person's board."""
    words = list(KNOWLEDGE.words.answers)
    for item in page.query_selector_all("#mine li"):
        tiles = item.query_selector_all(".tile")
        codes = [tile.get_attribute("data-mark") for tile in tiles]
        guess = "".join(tile.inner_text().lower() for tile in tiles)
        if all(codes):
            words = [word for word in words if marks(guess, word) == "".join(map(str, codes))]
    return words


def test_the_page_opens_where_a_secret_is_typed_that_a_player_guesses(tab):
    page = tab.page
    page.keyboard.type("crane")
    page.keyboard.press("Enter")
    page.wait_for_selector("#thought dl")
    [title] = titles(page)
    assert title.startswith("CRANE: won in ")
    tab.check("watch-one")


def test_a_run_and_its_start_play_the_same_secret_side_by_side(open_tab):
    players = {"best": "consistent", "start": "entropy", "lost": "broken"}
    choices = {
        key: Choice(label=f"the {key}", settings={"player": player}, before="start")
        for key, player in players.items()
    }
    choices["start"] = Choice(label="the start", settings={"player": "entropy"})
    choices["mini"] = choices["start"]
    choices["broken before"] = Choice(label="b", settings={"player": "hard"}, before="lost")
    with served_page(Page(choices, load, "mound")) as address:
        tab = open_tab(address)
        page = tab.page
        page.wait_for_selector("#thought .bars")  # the secret that was asked for is played at once
        wait(page, "!document.getElementById('watched').innerText.includes('…')")
        start_title, run_title = titles(page)
        assert start_title.startswith("Before: MOUND won in ") and run_title.startswith(
            "After: MOUND won in "
        )
        tab.check("pair")
        page.keyboard.press("ArrowLeft")
        wait(page, "document.querySelector('#thought h3').innerText === 'Before, turn 1'")
        assert "SALET" in page.inner_text("#thought dl").upper()
        page.keyboard.press("ArrowDown")
        wait(page, "document.querySelector('#thought h3').innerText === 'Before, turn 2'")
        page.select_option("#player", "start")  # which has nothing before it
        page.click("#watch-form button")
        page.wait_for_selector("#thought dl")
        assert len(titles(page)) == 1
        page.select_option("#player", "broken before")
        page.click("#watch-form button")
        wait(page, "document.getElementById('watched').innerText.includes('not played')")
        assert "damaged" in page.inner_text("#message") and "After: " in titles(page)[1]


def test_a_game_is_played_to_its_win_by_keyboard(tab):
    page = tab.page
    tab.show("play")
    wait(page, "!document.getElementById('give-up').disabled")
    assert page.locator("#mine li").count() == 6
    page.keyboard.type("zzzzz")
    page.keyboard.press("Enter")
    wait(page, "document.getElementById('message').textContent.includes('ZZZZZ')")
    for _ in range(5):
        page.keyboard.press("Backspace")
    type_guesses(page, ["zonal"])  # which is never the secret
    assert page.inner_text("#theirs li .tile") == ""
    tab.check("play")
    while not page.inner_text("#play-result"):
        count = page.locator("#mine .tile[data-mark]").count()
        page.keyboard.type(secrets_left(page)[0])
        page.keyboard.press("Enter")
        wait(page, f"document.querySelectorAll('#mine .tile[data-mark]').length > {count}")
    assert page.inner_text("#play-result").startswith("You found ")
    assert page.inner_text("#theirs li .tile") != ""  # their letters are shown now
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
    page.fill("#watch-secret", "mound")
    page.keyboard.press("Enter")
    page.wait_for_selector("#watched .bars tbody tr:nth-child(10)", timeout=240_000)
    page.keyboard.press("ArrowDown")
    wait(page, "document.querySelector('#watched h3 ~ dl') !== null")
    page.wait_for_selector("#watched .bars tbody tr")
    text = page.inner_text("#watched")
    assert "Turn 2" in text and "words left" in text and "best guess" in text
    assert "place 5" in page.inner_text("#watched .letters").lower()
    tab.check("watch")


def test_a_thought_is_shown_as_text(tab):
    page = tab.page
    page.select_option("#player", "thinker")
    page.click("#watch-form button")
    page.wait_for_selector("#watched pre")
    assert page.inner_text("#watched pre") == f"{THOUGHT}<guess>crane</guess>"
    assert not page.query_selector_all("#watched img, #watched pre b")
    tab.check("thought")


def test_two_players_are_compared_on_a_board(tab):
    page = tab.page
    tab.show("play")
    type_guesses(page, ["zonal"])
    page.click("#ask-here")
    page.wait_for_selector("#view-board:not([hidden])")
    assert page.input_value("#board-rows input") == "zonal"
    page.wait_for_selector("#asked > div:nth-child(2)")  # asks at once
    page.click("#clear-rows")
    page.fill("#board-rows input", "crane")
    assert page.inner_text("#asked") == "", "answers for another board"
    for _ in range(2):  # absent, elsewhere, in place
        page.click("#board-rows fieldset .tile:nth-of-type(4)")
    page.select_option("#rival", "consistent")
    page.click("#board-form button:text('Ask both')")
    page.wait_for_selector("#asked > div:nth-child(2)")
    assert page.inner_text("#asked").upper().count("MOUND") >= 2
    tab.check("board")
