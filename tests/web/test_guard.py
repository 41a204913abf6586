"""Who may ask, and what happens to requests that no page would send."""

from __future__ import annotations

import asyncio
import json
import random
import string
import threading
import time
from pathlib import Path

import pytest

from tests.helpers.web_page import HOST, TOKEN, Browser, choices, make_run, open_page
from wordle_rl.web.app import Page
from wordle_rl.web.lane import Lane
from wordle_rl.web.lobby import Lobby
from wordle_rl.web.refused import Refused

API = f"/{TOKEN}/api/about"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return open_page(make_run(tmp_path_factory.mktemp("run")))


@pytest.mark.parametrize(
    "path", ["", "/", "/wrong/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "//", "/é/"]
)
def test_nothing_is_served_without_the_token(path, browser):
    for method, more in (("GET", "style.css"), ("POST", "api/about"), ("GET", "")):
        response = browser.client.request(method, path + more, headers=JSON)
        assert response.status_code == 403
        assert "token" in response.json()["error"] and TOKEN not in response.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", f"{HOST}.evil"])
def test_another_host_is_refused_as_a_rebound_name_would_send_it(host, browser):
    response = browser.client.post(API, content="{}", headers={**JSON, "host": host})
    assert (response.status_code, response.json()) == (
        421, {"error": "this address is not the page's own"}
    )  # fmt: skip


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", f"http://{HOST}0"])
def test_another_site_may_not_ask(origin, browser):
    response = browser.client.post(API, content="{}", headers={**JSON, "origin": origin})
    assert response.status_code == 403
    own = browser.client.post(API, content="{}", headers={**JSON, "origin": f"http://{HOST}"})
    assert own.status_code == 200


def test_the_page_may_load_its_own_files_alone(browser):
    page = browser.client.get(f"/{TOKEN}/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "http" not in policy and "data:" not in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["cache-control"] == "no-store"
    assert "://" not in page.text and "<script>" not in page.text and "style=" not in page.text
    for name in ("main.js", "style.css", "icon.svg"):
        file = browser.client.get(f"/{TOKEN}/{name}")
        assert file.status_code == 200 and name in page.text
    assert browser.client.get(f"/{TOKEN}", follow_redirects=False).headers["location"] == (
        f"/{TOKEN}/"
    )


@pytest.mark.parametrize(
    "path",
    [
        "../pyproject.toml", "..%2f..%2fetc/passwd", "%2e%2e/app.py", "app.py", "static/main.js",
        "//etc/passwd", "main.js/", "main.js%00", "index.html", "api/about/x", "x" * 150,
    ],
)  # fmt: skip
def test_no_other_file_of_the_machine_is_reachable(path, browser):
    response = browser.client.get(f"/{TOKEN}/{path}")
    assert response.status_code in (403, 404) and list(response.json()) == ["error"]


def test_a_path_or_body_that_is_too_long_is_refused(browser):
    assert browser.client.get(f"/{TOKEN}/{'x' * 300}").status_code == 414
    assert browser.client.post(API, content=b" " * 5000, headers=JSON).status_code == 413

    def pieces():
        for _ in range(100):
            yield b" " * 1000

    assert browser.client.post(API, content=pieces(), headers=JSON).status_code == 413


BAD: list[tuple[str, str, dict[str, str], int, str]] = [  # question, body, headers, status, said
    ("about", "{}", {}, 415, "the body must be application/json"),
    ("about", "", JSON, 400, "the body must be JSON"),
    ("about", "[1]", JSON, 400, "the body must be a JSON object"),
    ("about", '{"a": NaN}', JSON, 400, "the body must be JSON"),
    ("about", "[" * 3000, JSON, 400, "the body must be JSON"),
    ("about", '{"a": 1}', JSON, 422, "there is no field 'a'; the fields are none"),
    ("new", "{}", JSON, 422, "player must be one of entropy,"),
    ("new", '{"player": "../run"}', JSON, 422, "player must be one of entropy,"),
    ("guess", '{"match": "x"}', JSON, 404, "this game is forgotten: begin a new one"),
    ("guess", '{"match": "a b"}', JSON, 422, "match must be 1 to 64 letters"),
    ("watch", '{"player": "entropy", "secret": "cr\\u00e4ne"}', JSON, 422, "secret must be 5 lett"),
    ("watch", '{"player": "entropy", "secret": "qqqqq"}', JSON, 422, "QQQQQ is not in the word"),
    ("think", '{"game": "x", "turn": 0}', JSON, 404, "this game is forgotten: watch another one"),
    ("board", '{"player": "entropy"}', JSON, 422, "rows must be a list of at most 12"),
    ("board", '{"player": "entropy", "rows": [["crane", "ggggg"]]}', JSON, 422, "rows[0] must be"),
    ("board", '{"player": "entropy", "rows": [["crane", "✓✓✓✓✓"]]}', JSON, 422, "rows[0]: five ✓"),
    ("games", '{"file": "manifest", "page": 0}', JSON, 422, "file must be one of games,"),
    ("games", '{"file": "games", "page": -1}', JSON, 422, "page must be a whole number 0.."),
    ("games", '{"file": "games", "page": 0, "won": "maybe"}', JSON, 422, "won must be one of yes"),
    ("replay", '{"file": "games", "number": true}', JSON, 422, "number must be a whole number"),
    ("nothing", "{}", JSON, 404, "not found"),
]


@pytest.mark.parametrize(("name", "body", "headers", "status", "said"), BAD)
def test_each_mistake_has_its_status_and_its_line(name, body, headers, status, said, browser):
    response = browser.client.post(f"/{TOKEN}/api/{name}", content=body, headers=headers)
    assert response.status_code == status and response.json()["error"].startswith(said)


def test_rows_that_leave_no_turn_are_refused(browser):
    rows = [["crane", "xxxxx"]] * 6
    assert browser.refused("board", player="entropy", rows=rows) == (
        422, "rows must leave a turn: 5 guesses at most"
    )  # fmt: skip


def wild(draw: random.Random, depth: int = 0) -> object:
    """Some JSON value that a page would not send, or nearly would."""
    kinds = ["word", "text", "number", "other", "list", "object"][: 6 if depth < 3 else 4]
    match draw.choice(kinds):
        case "word":
            return "".join(draw.choices(string.ascii_letters + "é✓x-", k=draw.choice([4, 5, 5, 6])))
        case "text":
            return "".join(map(chr, draw.choices([0, 10, 60, 0x202E, 0xD7FF, 0x1F600], k=9)))
        case "number":
            return draw.choice([-1, 0, 1, 5, 10**30, 1e300, -0.0, 2**63])
        case "other":
            return draw.choice([None, True, False, "", "games", "entropy", "yes", "../../etc"])
        case "list":
            return [wild(draw, depth + 1) for _ in range(draw.randrange(15))]
    return {str(wild(draw, 9)): wild(draw, depth + 1) for _ in range(draw.randrange(5))}


NAMES = ("about", "new", "guess", "give_up", "watch", "think", "board", "games", "replay", "follow")
FIELDS = ("player", "match", "guess", "game", "turn", "secret", "rows", "file", "page", "number")


def malformed(draw: random.Random, browser: Browser) -> int:
    """Send one request that is wrong in some way, or only odd. Returns its status."""
    fields = {draw.choice(FIELDS): wild(draw) for _ in range(draw.randrange(4))}
    if draw.random() < 0.5:
        fields["player"] = draw.choice(["entropy", "consistent", "gibberish", "broken", "hard"])
    if draw.random() < 0.3:
        fields["file"] = draw.choice(["games", "start_games", "validation_games"])
    body = json.dumps(fields).encode()
    if draw.random() < 0.3:  # damaged text
        cut = draw.randrange(len(body) + 1)
        body = body[:cut] + bytes(draw.choices(range(256), k=draw.randrange(8))) + body[cut + 1 :]
    headers = {
        "content-type": draw.choice(["application/json"] * 4 + ["text/plain", "", "application/x"]),
        **({"host": draw.choice(["evil", f"{HOST}@x"])} if draw.random() < 0.05 else {}),
        **({"content-length": draw.choice(["9", "0", "-1", "x"])} if draw.random() < 0.1 else {}),
        **({"origin": draw.choice(["null", "http://x", "::"])} if draw.random() < 0.05 else {}),
    }
    token = TOKEN if draw.random() < 0.9 else draw.choice(["", "x", TOKEN.upper(), "%00"])
    name = draw.choice([*(f"api/{name}" for name in NAMES), "main.js", "", "%ff", "a/../b"])
    method = draw.choice(["POST"] * 8 + ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "ODD"])
    response = browser.client.request(method, f"/{token}/{name}", content=body, headers=headers)
    if response.status_code >= 400 and method != "HEAD":
        assert list(response.json()) == ["error"]
        error = response.json()["error"]
        assert "Traceback" not in error and "\n" not in error and len(error) < 400
    return response.status_code


@pytest.mark.parametrize("seed", range(4))
def test_malformed_requests_never_break_the_server(seed, browser):
    draw = random.Random(seed)
    statuses = [malformed(draw, browser) for _ in range(250)]  # 1,000 in all; an exception fails
    assert max(statuses) < 500
    assert {200, 400, 403, 404, 405, 415, 422} <= set(statuses)
    assert browser.ask("board", player="entropy", rows=[])["guess"] == "salet"


def test_work_that_takes_too_long_is_stopped_and_the_next_is_done():
    lane, stopped = Lane(seconds=0.05), threading.Event()

    def endless(stop):
        while not stop():
            time.sleep(0.005)
        stopped.set()

    with pytest.raises(Refused, match=r"more than 0\.05 seconds") as refused:
        asyncio.run(lane.run(endless))
    assert refused.value.status == 504 and stopped.wait(2)
    assert asyncio.run(lane.run(lambda stop: 7)) == 7


def test_too_many_waiting_requests_are_refused_at_once():
    lane, go = Lane(seconds=5, most=2), threading.Event()

    async def crowd():
        first = [asyncio.create_task(lane.run(lambda _: go.wait(5))) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="too many requests"):
            await lane.run(lambda _: None)
        go.set()
        return await asyncio.gather(*first)

    assert asyncio.run(crowd()) == [True, True]


def test_a_bug_is_an_answer_in_json_too_and_the_page_lives_on(monkeypatch):
    from starlette.testclient import TestClient

    from wordle_rl.web.server import guarded

    page = Page(Lobby(choices()), None, None)

    async def bug(request):
        raise RuntimeError("a bug")

    monkeypatch.setattr(page, "about", bug)
    app = guarded(page, TOKEN, 8123)
    client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)
    response = client.post(API, content="{}", headers=JSON)
    assert (response.status_code, list(response.json())) == (500, ["error"])
    assert "a bug" not in response.text
    assert client.get(f"/{TOKEN}/").status_code == 200


def test_the_run_folder_is_the_only_one_that_is_read(tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    browser = open_page(make_run(tmp_path / "runs"))
    for file in ("../other/games", "/etc/passwd", "manifest", "games.jsonl"):
        assert browser.try_to_ask("games", file=file, page=0)[0] == 422
