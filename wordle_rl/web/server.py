"""The page's server: one file to show, and six questions, each a POST of a JSON object.

It listens on the loopback interface alone. Every question is answered in one thread, because a
model serves one thread at a time. An error is an answer {"error": "one line"} with status 422. Only
application/json is read, which the page of another site cannot send.
"""

import asyncio
import itertools
import json
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Route

from wordle_rl.data.rows import read_feedback, read_word
from wordle_rl.evaluation.boards import NOTES
from wordle_rl.game.rules import (
    Clue,
    Game,
    GameStatus,
    PlayedTurn,
    State,
    breaks_hard_mode,
    marks_of,
)
from wordle_rl.policy.engine import NotFinite
from wordle_rl.runs.files import check_all_entries
from wordle_rl.runs.instantiate import check_choice, check_type
from wordle_rl.web.likeliest_words import WordChances
from wordle_rl.web.opponent import RIVALS, Abandoned, Choice, Opponent, WatchedGame

LOOPBACK = "127.0.0.1"
WORDS, LETTERS = 10, 6  # likeliest words that are shown, and likeliest letters in each place
_MAX_GAMES = 100  # games that can still be played or looked at
_MAX_SIZE = 100_000  # bytes of a question
_AT_THE_END = (Abandoned, asyncio.CancelledError)  # of the server, for questions that still wait
_ERRORS = (ValueError, OSError, NotFinite, ModuleNotFoundError, *_AT_THE_END)


class Page:
    """Answers the page's questions, each by a method whose parameters are the question's fields.

    Only `thread` may call these.
    """

    def __init__(
        self, choices: dict[str, Choice], load: Callable[..., Opponent], secret: str | None = None
    ) -> None:
        """choices: the player that was asked for comes first. load: takes a choice's settings.

        secret: to watch first, and of the first game; None for one by chance.
        """
        self._choices, self._secret = choices, secret
        self._load = cache(lambda key: load(*choices[key].given, **choices[key].settings))
        self.thread = ThreadPoolExecutor(max_workers=1)
        self._closing = threading.Event()
        self._numbers = itertools.count()
        self._games: dict[int, tuple[Opponent, Game | None, WatchedGame]] = {}

    def player(self, key: str) -> Opponent:
        """The player of a choice, loaded once. Raises ValueError for no choice."""
        check_choice("player", key, tuple(self._choices))
        return self._load(key)

    def close(self) -> None:
        """End a game that is being played after its next turn, and drop what waits."""
        self._closing.set()
        self.thread.shutdown(wait=False, cancel_futures=True)

    def about(self) -> dict[str, Any]:
        """Everybody that can be chosen, the first player first, and whom Board compares it with.

        before: which player is watched beside another one. secret: to watch first.
        """
        choices = self._choices
        others = [key for key in RIVALS if key in choices and key != next(iter(choices))]
        labels = [[key, choice.label] for key, choice in choices.items()]
        before = {key: choice.before for key, choice in choices.items() if choice.before}
        return {"players": labels, "rival": others[0], "before": before, "secret": self._secret}

    def new(self, player: str) -> dict[str, Any]:
        """Begin a match: the player plays its whole game, which is shown turn by turn."""
        opponent = self.player(player)
        secret = pick_secret(opponent, self._secret)
        self._secret = None
        mine = Game(secret, opponent.knowledge.words.allowed_set, opponent.rules)
        theirs = opponent.play(secret, self._closing.is_set)
        return self._show_match(self._keep(opponent, mine, theirs))

    def guess(self, game: int, guess: str | None) -> dict[str, Any]:
        """Play a person's guess; without a guess, give up. A word against the rules is an error."""
        _, mine, _ = self._find_game(game)
        if mine is None:
            raise ValueError("this game is only watched")
        word = guess and read_word("guess", guess)
        if mine.status is not GameStatus.PLAYING:
            raise ValueError("this game is over")
        if not word:
            mine.forfeit()
        elif word not in mine.allowed:
            raise ValueError(f"{word.upper()} is not in the word list")
        elif mine.rules.hard_mode and breaks_hard_mode(word, mine.state.clues):
            raise ValueError(f"hard mode: {word.upper()} ignores a clue")
        else:
            mine.play(word)
        return self._show_match(game)

    def watch(self, player: str, secret: str | None) -> dict[str, Any]:
        """Let a player play a whole game, with the facts and the reward of each turn."""
        opponent = self.player(player)
        word = secret and read_word("secret", secret)
        watched = opponent.play(pick_secret(opponent, word), self._closing.is_set)
        game = watched.game
        rewards = opponent.rewards.reward(game)
        return {
            "game": self._keep(opponent, None, watched),
            "secret": game.secret,
            "won": game.won,
            "turns": [
                {
                    **show_turn(turn),
                    "note": (turn.reason or NOTES[turn.kind]).replace("_", " "),
                    "text": turn.text,
                    "reward": dict(parts),
                    "facts": opponent.judge(turn.state, turn.guess),
                }
                for turn, parts in zip(game.turns, rewards.turns, strict=True)
            ],
        }

    def think(self, game: int, turn: int) -> dict[str, Any]:
        """The probabilities at one turn of a game that was watched."""
        opponent, _, watched = self._find_game(game)
        turns = watched.game.turns
        if not 0 <= turn < len(turns):
            raise ValueError(f"turn must be 0..{len(turns) - 1}, not {turn}")
        chances = opponent.chances(watched, turn, self._closing.is_set)
        return {"chances": show_chances(chances, turns[turn].guess)}

    def board(self, player: str, rows: list[list[str]]) -> dict[str, Any]:
        """What a player would guess on a board that somebody made."""
        opponent = self.player(player)
        clues = []
        for word, marks in rows:
            guess = read_word("guess", word)
            clues.append(Clue(guess, read_feedback(guess, marks)))
        state = State(tuple(clues), len(clues), opponent.rules.max_turns)
        if state.turn >= state.max_turns:
            raise ValueError(f"a board needs a turn that is left: {state.max_turns - 1} rows")
        turn, chances = opponent.ask(state, self._closing.is_set)
        return {
            "guess": turn.guess,
            "note": (turn.reason or "").replace("_", " "),
            "text": turn.text,
            "facts": opponent.judge(state, turn.guess),
            "chances": show_chances(chances, turn.guess),
        }

    def _keep(self, opponent: Opponent, mine: Game | None, theirs: WatchedGame) -> int:
        """Keep a game under a number, and forget the oldest of many."""
        number = next(self._numbers)
        self._games[number] = opponent, mine, theirs
        self._games.pop(number - _MAX_GAMES, None)
        return number

    def _find_game(self, number: int) -> tuple[Opponent, Game | None, WatchedGame]:
        if number not in self._games:
            raise ValueError("this game is forgotten: begin another one")
        return self._games[number]

    def _show_match(self, number: int) -> dict[str, Any]:
        """A match as far as the person may see it: the player's letters only at the end."""
        _, mine, watched = self._find_game(number)
        assert mine is not None
        theirs, over = watched.game, mine.status is not GameStatus.PLAYING
        turns = theirs.turns if over else theirs.turns[: len(mine.turns)]
        done = len(turns) == len(theirs.turns)
        return {
            "game": number,
            "over": over,
            "won": mine.won,
            "secret": mine.secret if over else None,
            "max_turns": mine.rules.max_turns,
            "rows": [show_turn(turn) for turn in mine.turns],
            "theirs": [show_turn(turn) | ({} if over else {"guess": None}) for turn in turns],
            "they_are_done": done,
            "they_won": done and theirs.won,
            "their_turns": theirs.state.turn if over else None,
        }


def pick_secret(opponent: Opponent, wanted: str | None) -> str:
    """The wanted secret, or one of the player's by chance. Raises ValueError for a non-word."""
    if wanted:
        check_allowed(wanted, opponent.knowledge.words.allowed_set)
    return wanted or secrets.choice(opponent.secrets)


def check_allowed(word: str, allowed: Collection[str]) -> None:
    """Raise ValueError for a word that is not allowed."""
    if word not in allowed:
        raise ValueError(f"{word.upper()} is not in the word list")


def show_turn(turn: PlayedTurn) -> dict[str, Any]:
    """One row of a board. marks: None without feedback."""
    marks = None if turn.feedback is None else marks_of(turn.feedback)
    return {"guess": turn.guess, "marks": marks, "note": NOTES[turn.kind]}


def show_chances(chances: WordChances | None, guess: str | None) -> dict[str, Any] | None:
    """The likeliest words, and the likeliest letters in each place, with their probabilities."""
    if chances is None:
        return None
    return {
        "words": list(chances.words.items())[:WORDS],
        "letters": [list(letters.items())[:LETTERS] for letters in chances.letters],
        "guess": chances.words.get(guess or ""),
        "untried": chances.untried,
        "other": chances.other,
        "exact": chances.exact,
    }


async def _read_fields(request: Request, kinds: dict[str, Any]) -> dict[str, Any]:
    """The fields of a question. Raises ValueError unless they are those that it has."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise ValueError("a question must be application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_SIZE:
            raise ValueError(f"a question must have at most {_MAX_SIZE:,} bytes")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a question must be JSON: {error}") from None
    check_type("a question", fields, dict)
    check_all_entries("a question", fields, kinds)
    return {name: fields[name] for name in kinds}


def build_app(page: Page) -> Starlette:
    """The page and its questions, for requests that name this machine as their host."""

    def route(answer: Callable[..., dict[str, Any]]) -> Route:
        kinds = {name: kind for name, kind in get_type_hints(answer).items() if name != "return"}

        async def endpoint(request: Request) -> JSONResponse:
            loop = asyncio.get_running_loop()
            try:
                call = partial(answer, **await _read_fields(request, kinds))
                return JSONResponse(await loop.run_in_executor(page.thread, call))
            except _ERRORS as error:
                return JSONResponse({"error": " ".join(str(error).split())}, 422)

        return Route(f"/api/{answer.__name__}", endpoint, methods=["POST"])

    async def show(request: Request) -> FileResponse:
        return FileResponse(Path(__file__).parent / "static" / "index.html")

    questions = (page.about, page.new, page.guess, page.watch, page.think, page.board)
    return Starlette(
        routes=[Route("/", show), *map(route, questions)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])],
    )


def serve(page: Page, *, port: int, browser: bool) -> None:
    """Print the address, open a browser if it is wanted, and serve until Ctrl-C."""
    with socket.create_server((LOOPBACK, port)) as listener:
        address = f"http://{LOOPBACK}:{listener.getsockname()[1]}/"
        print(f"{address}\nCtrl-C ends it.", flush=True)
        if browser and can_open():
            webbrowser.open(address)
        config = uvicorn.Config(
            build_app(page), log_level="warning", lifespan="off", timeout_graceful_shutdown=1
        )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            page.close()


def can_open() -> bool:
    """Whether there is a desktop: a browser for terminals would take this one."""
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(desktop) or not sys.platform.startswith("linux")
