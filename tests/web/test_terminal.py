"""The game in a terminal, and the command line of play.py."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress

import pytest
from starlette.testclient import TestClient

from tests.helpers.web_page import HOST, PORT, TOKEN, Browser, choices, make_run
from wordle_rl import play
from wordle_rl.play_terminal import TerminalTable
from wordle_rl.runs.paths import ROOT
from wordle_rl.web import server
from wordle_rl.web.app import Page
from wordle_rl.web.lobby import Lobby


def terminal(lines: str, capsys, *, colour: bool = False, secret: str | None = "mound") -> str:
    """What a game in the terminal prints for these lines."""
    TerminalTable(Lobby(choices()), colour, secret).run(lines.splitlines(keepends=True))
    return capsys.readouterr().out


def test_a_game_is_won_and_shown_beside_the_players(capsys):
    shown = terminal("crane\nmound\n", capsys)
    assert "you   CRANE xxx✓x\n" in shown
    assert "they  ····· xxxxx\n" in shown  # salet, whose letters are hidden
    assert "you, then entropy with list: a draw" in shown
    assert "MOUND won in 2" in shown and "SALET xxxxx" in shown


def test_colours_are_for_terminals(capsys):
    assert "\x1b[30;42m M \x1b[0m" in terminal("mound\n", capsys, colour=True)
    assert "\x1b" not in terminal("mound\n", capsys)


def test_the_player_is_asked_for_hints_boards_and_whole_games(capsys):
    shown = terminal("crane\n/hint\n/board sleep xxxxx\n/watch steel\n/players\n", capsys)
    assert shown.count("entropy with list guesses MOUND") == 2
    assert "   1 word left, 0.00 bits; best MOUND 0.00 bits" in shown
    assert "likeliest: mound 100.0 %" in shown
    assert "entropy with list found STEEL" in shown and "reward +1." in shown
    assert "consistent                 whatever fits" in shown


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("zzzzz", "ZZZZZ is not in the word list"),
        ("crân", "a guess is one word of five letters"),
        ("/dance", "there is no command /dance: /help lists them"),
        ("/board crane", "/board takes pairs of a word and its marks"),
        ("/board crane ggggg", "not a word and five marks"),
        ("/against broken", "the model of this player is damaged"),
        ("/against nobody", "/against takes one of the names"),
        ("/new zzzzz", "ZZZZZ is not in the word list"),
    ],
)
def test_a_mistake_is_told_and_the_game_continues(line, said, capsys):
    shown = terminal(f"{line}\nmound\n", capsys)
    assert said in shown and "MOUND won in 1" in shown


def test_quit_ends_before_the_last_line(capsys):
    assert "you   " not in terminal("/quit\nmound\n", capsys)


def test_through_a_pipe_without_the_web_framework():
    blocked = (
        "import sys; sys.modules['starlette'] = sys.modules['uvicorn'] = None; "
        "from wordle_rl import play; from wordle_rl.runs.errors import run_plain; "
        "sys.argv[0] = 'play'; run_plain(play.main)"
    )
    options = ["--terminal", "--player", "entropy", "--secret", "CRANE"]
    done = subprocess.run(
        [sys.executable, "-c", blocked, *options], cwd=ROOT, input="slate\ncrane\n",
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "you win" in done.stdout or "a draw" in done.stdout
    assert "CRANE won in 2" in done.stdout
    page = subprocess.run(
        [sys.executable, "-c", blocked, "--player", "entropy"], cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert page.returncode == 2
    [line] = page.stderr.splitlines()
    assert "the page needs" in line and "[web]', or add --terminal" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--model nano", "--model must be one of"),
        ("--player chess", "--player must be one of entropy"),
        ("--run outputs/nothing", "no such run folder"),
        ("--model mini --player entropy", "not allowed with argument --model"),
        ("--port 70000", "--port must be 0..65535, not 70000"),
        ("--port http", "invalid int value"),
        ("--checkpoint start", "--checkpoint needs --run"),
        ("--terminal --player entropy --secret qqqqq", "QQQQQ is not in the word list"),
        ("--terminal --player entropy --secret cr", "CR is not in the word list"),
        ("surprise", "unrecognized arguments: surprise"),
    ],
)
def test_a_wrong_option_ends_in_one_line(
    arguments: str, said: str, refused: Callable[[Callable[[], object]], str]
):
    assert said in refused(lambda: play.main(arguments.split()))


def test_a_run_without_a_checkpoint_is_followed_all_the_same(tmp_path, capsys, monkeypatch):
    served: list[Page] = []
    monkeypatch.setattr(server, "serve", lambda page, **_: served.append(page))
    run = make_run(tmp_path)
    assert play.main(["--run", str(run.path), "--no-browser"]) == 0
    [note] = capsys.readouterr().out.splitlines()
    assert note.startswith("note: ") and "config.yaml is missing" in note
    browser = Browser(TestClient(server.guarded(served[0], TOKEN, PORT), base_url=f"http://{HOST}"))
    assert browser.ask("follow")["step"] == 60
    status, error = browser.refused("new", player="run_best")
    assert status == 409 and "config.yaml is missing" in error


def test_the_command_serves_its_page_until_ctrl_c():
    command = [sys.executable, "-m", "wordle_rl.play", "--player", "random", "--no-browser"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        host, port = address.split("/")[2].split(":")
        for garbage in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"A" * 40_000, b"POST"):
            with socket.create_connection((host, int(port)), timeout=10) as raw, suppress(OSError):
                raw.sendall(garbage)  # the server may hang up before it has read everything
        with urllib.request.urlopen(address, timeout=10) as page:
            assert page.status == 200 and b"<title>Play" in page.read()
            assert "server" not in page.headers
        other = address[:-5] + "/"  # a part of the token is missing
        rebound = urllib.request.Request(address, headers={"Host": "evil.example"})
        for asked, code in ((other, 403), (rebound, 421)):
            with pytest.raises(urllib.error.HTTPError) as wrong:
                urllib.request.urlopen(asked, timeout=10)
            assert wrong.value.code == code
            wrong.value.close()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert (process.returncode, told.replace("WARNING:  Invalid HTTP request received.\n", "")) == (
        130,
        "",
    )
