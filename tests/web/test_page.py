"""What the page can be asked: matches, watched games, thoughts and boards."""

import socket
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.helpers.web_page import ANSWERS, load
from wordle_rl.game.rules import marks
from wordle_rl.runs.folder import RunFolder
from wordle_rl.web.opponent import Choice, list_choices
from wordle_rl.web.server import Page, build_app, serve


def small_page(secret: str | None = None) -> Page:
    """A page of scripted players on seven words."""
    keys = ("entropy", "consistent", "hard", "broken")
    choices = {key: Choice(label=f"the {key} one", settings={"player": key}) for key in keys}
    return Page({**choices, "mini": choices["consistent"]}, load, secret)


class Browser:
    """Asks as the page's own script does."""

    def __init__(self, secret: str | None = None) -> None:
        self.client = TestClient(build_app(small_page(secret)), base_url="http://127.0.0.1:80")

    def ask(self, name: str, **fields: Any) -> Any:
        response = self.client.post(f"/api/{name}", json=fields)
        assert response.status_code == 200, response.text
        return response.json()

    def error(self, name: str, **fields: Any) -> str:
        response = self.client.post(f"/api/{name}", json=fields)
        assert response.status_code == 422
        return response.json()["error"]


@pytest.fixture
def browser() -> Browser:
    return Browser("mound")


def test_a_person_plays_to_a_win_and_sees_the_others_letters_then(browser):
    game = browser.ask("new", player="entropy")
    assert game["rows"] == game["theirs"] == [] and game["secret"] is None
    first = browser.ask("guess", game=game["game"], guess="CRANE")
    assert first["rows"] == [{"guess": "crane", "marks": marks("crane", "mound"), "note": ""}]
    assert first["theirs"] == [{"guess": None, "marks": marks("salet", "mound"), "note": ""}]
    assert (first["over"], first["secret"], first["they_won"]) == (False, None, False)
    last = browser.ask("guess", game=game["game"], guess="mound")
    assert (last["over"], last["won"], last["secret"]) == (True, True, "mound")
    assert last["theirs"][0]["guess"] == "salet" and last["they_won"]
    assert browser.error("guess", game=game["game"], guess="slate") == "this game is over"


def test_a_word_against_the_rules_uses_no_turn(browser):
    game = browser.ask("new", player="hard")["game"]
    for guess, message in (
        ("zzzzz", "ZZZZZ is not in the word list"),
        ("crân", "the guess must have five letters, not 'crân'"),
    ):
        assert browser.error("guess", game=game, guess=guess) == message
    assert len(browser.ask("guess", game=game, guess="crane")["rows"]) == 1
    assert browser.error("guess", game=game, guess="steel") == "hard mode: STEEL ignores a clue"
    assert len(browser.ask("guess", game=game, guess="mound")["rows"]) == 2


def test_a_player_is_watched_turn_by_turn(browser):
    game = browser.ask("watch", player="consistent", secret="mound")
    assert game["won"] and game["secret"] == "mound"
    for number, turn in enumerate(game["turns"]):
        facts = turn["facts"]
        chances = browser.ask("think", game=game["game"], turn=number)["chances"]
        assert len(chances["words"]) == min(10, facts["candidates"])
        assert sum(chance for _, chance in chances["words"]) == pytest.approx(1.0)
        assert turn["guess"] in dict(chances["words"])
        assert facts["best_bits"] >= facts["bits"] and facts["fits"]
    assert game["turns"][-1]["reward"]["win"] > 0
    message = browser.error("think", game=99, turn=0)
    assert message == "this game is forgotten: begin another one"


ASK: dict[str, tuple[str, Any]] = {  # what is wrong with a question: its name, and its body
    "no JSON": ("new", b"{"),
    "nothing": ("new", b""),
    "a list": ("new", b"[]"),
    "no fields": ("new", b"{}"),
    "another player": ("new", b'{"player": "nobody"}'),
    "another kind": ("guess", b'{"game": "x", "guess": 5}'),
    "a list as game": ("think", b'{"game": [0], "turn": 0}'),
    "odd rows": ("board", b'{"player": "entropy", "rows": [["crane"], 5]}'),
    "half a row": ("board", b'{"player": "entropy", "rows": [["crane"]]}'),
    "too deep": ("new", b"[" * 40_000),
    "too large": ("new", b" " * 100_001),
}


@pytest.mark.parametrize("what", ASK)
def test_a_wrong_question_is_one_line(what, browser):
    name, body = ASK[what]
    headers = {"Content-Type": "application/json"}
    response = browser.client.post(f"/api/{name}", content=body, headers=headers)
    assert response.status_code == 422 and "\n" not in response.json()["error"]


def test_a_turn_that_was_not_played_and_a_guess_in_a_watched_game_are_refused(browser):
    game = browser.ask("watch", player="consistent", secret="mound")["game"]
    for turn in (-1, 6):
        assert browser.error("think", game=game, turn=turn).startswith("turn must be 0..")
    assert browser.error("guess", game=game, guess="crane") == "this game is only watched"


def test_the_page_of_another_site_cannot_ask(browser):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = browser.client.post(
            "/api/new", content=b'{"player": "entropy"}', headers={"Content-Type": kind}
        )
        assert response.status_code == 422 and "application/json" in response.json()["error"]


def test_two_players_are_compared_on_a_board_made_by_hand(browser):
    rows = [["crane", "xxx✓x"], ["Sleep", "xxxxx"]]
    for player in ("entropy", "consistent"):
        answer = browser.ask("board", player=player, rows=rows)
        assert answer["guess"] == "mound" and answer["facts"]["candidates"] == 1
        assert answer["chances"]["words"] == [["mound", 1.0]]
    start = browser.ask("board", player="entropy", rows=[])
    assert start["guess"] == "salet" and start["facts"]["candidates"] == len(ANSWERS)
    conflict = browser.ask("board", player="consistent", rows=[["mound", "xxxxx"], *rows[:1]])
    assert conflict["facts"]["candidates"] == 0 and conflict["facts"]["best"] is None
    assert browser.error("board", player="entropy", rows=rows * 3).endswith("is left: 5 rows")


def test_another_host_is_refused_as_a_rebound_name_would_send_it(browser):
    for path in ("/", "/api/about"):
        for host in ("evil.example", "", "127.0.0.1.evil.example", "10.0.0.1"):
            assert browser.client.get(path, headers={"host": host}).status_code == 400
    assert browser.client.get("/", headers={"host": "localhost:8000"}).status_code == 200


def test_the_server_listens_on_this_machine_alone_and_a_port_in_use_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            serve(small_page(), port=port, browser=False)


def test_a_run_comes_first_and_is_compared_with_its_start(tmp_path):
    run = RunFolder.create(tmp_path, "one")
    choices = list_choices(model=None, player=None, run=run, checkpoint="last")
    assert list(choices)[:2] == ["last of the run", "start of the run"]
    browser = TestClient(build_app(Page(choices, load)), base_url="http://localhost")
    info = browser.post("/api/about", json={}).json()
    assert info["rival"] == "start of the run"
    assert info["before"] == {"last of the run": "start of the run"}, "watched beside each other"
    start = list_choices(model=None, player=None, run=run, checkpoint="start")
    assert [choice.before for choice in start.values()] == [None] * len(start)
    options = {"run": None, "checkpoint": "best"}
    assert next(iter(list_choices(model=None, player=None, **options))) == "mini"
    assert next(iter(list_choices(model="tiny", player=None, **options))) == "tiny"
    assert next(iter(list_choices(model=None, player="random", **options))) == "random"
    grammar = list_choices(model="tiny", player=None, given=["sampling.grammar=words"], **options)
    calls: list[tuple[Any, ...]] = []
    page = Page(grammar, lambda *args, **_: calls.append(args) or load(player="entropy"))
    page.player("tiny")
    assert calls == [("sampling.grammar=words",)] and calls[0][0] in grammar["tiny"].label


def test_a_run_and_its_start_play_by_the_same_settings(tmp_path):
    run, overrides = RunFolder.create(tmp_path, "one"), ["sampling.grammar=words"]
    choices = list_choices(model=None, player=None, run=run, checkpoint="best", given=overrides)
    keys = {key for key, choice in choices.items() if choice.given}
    assert keys == {"best of the run", "start of the run"}
    assert all(overrides[0] in choices[key].label for key in keys)


def test_the_secret_that_was_asked_for_is_watched_first(browser):
    assert browser.ask("about")["secret"] == "mound"
    assert Browser().ask("about")["secret"] is None
