"""The application behind the page: its files, and what it can be asked.

Every question is a POST with a JSON object, and every answer is JSON. An error is
{"error": "one line"} with a status from 400 on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from wordle_rl.game.rules import State
from wordle_rl.policy.engine import NotFinite
from wordle_rl.rollouts.opponent import Abandoned, Opponent, Stop, WatchedGame
from wordle_rl.runs.libraries import missing
from wordle_rl.runs.start import Failed
from wordle_rl.runs.untrusted import printable
from wordle_rl.web.fields import Fields
from wordle_rl.web.guard import as_json
from wordle_rl.web.lane import Lane
from wordle_rl.web.lobby import Lobby
from wordle_rl.web.match import Match, NotAllowed, Shelf, new_match, pick_secret
from wordle_rl.web.refused import Refused
from wordle_rl.web.run_view import FILES, RunView
from wordle_rl.web.shown import show_asked, show_chances, show_facts, show_match, show_watched

SECONDS = 60.0  # that a model may take for one request
_FILE_SECONDS = 20.0  # that reading a run's files may take
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_MOST_NUMBER = 10_000_000  # of a game in a file, and of a page of a list


class Page:
    """What the page can be asked. Models and files have a worker thread each."""

    def __init__(self, lobby: Lobby, run: RunView | None, secret: str | None) -> None:
        """secret: of the first game, None for one by chance."""
        self._lobby, self._run, self._secret = lobby, run, secret
        self.models, self.files = Lane(SECONDS), Lane(_FILE_SECONDS)
        self._matches: Shelf[Match] = Shelf()
        self._watched: Shelf[tuple[Opponent, WatchedGame]] = Shelf()

    async def about(self, request: Request) -> Any:
        await read_fields(request)
        return {
            "players": [
                {"key": choice.key, "label": choice.label}
                for choice in self._lobby.choices.values()
            ],
            "first": self._lobby.first,
            "rival": self._lobby.rival,
            "run": None if self._run is None else self._run.run.path.name,
            "files": list(FILES),
        }

    async def new(self, request: Request) -> Any:
        """Begin a match."""
        fields = await read_fields(request, "player")
        key = fields.one_of("player", self._lobby.choices)

        def work(stop: Stop) -> Any:
            opponent, wanted = self._lobby.get(key), self._secret
            self._secret = None
            match = new_match(opponent, pick_secret(opponent, wanted), stop)
            return {"match": self._matches.put(match), **show_match(match)}

        return await self.models.run(work)

    async def guess(self, request: Request) -> Any:
        """Play a person's guess."""
        fields = await read_fields(request, "match", "guess")
        match, word = self._match(fields), fields.word("guess")
        match.guess(word)
        return show_match(match)

    async def give_up(self, request: Request) -> Any:
        match = self._match(await read_fields(request, "match"))
        if not match.over:
            match.mine.forfeit()
        return show_match(match)

    async def watch(self, request: Request) -> Any:
        """Let a player play a whole game."""
        fields = await read_fields(request, "player", "secret")
        key = fields.one_of("player", self._lobby.choices)
        wanted = fields.word("secret") if fields.has("secret") else None

        def work(stop: Stop) -> Any:
            opponent = self._lobby.get(key)
            watched = opponent.play(pick_secret(opponent, wanted), stop)
            reward = opponent.rewards.score(watched.game)
            shown = show_watched(watched, reward, self._lobby.judge(opponent))
            return {"game": self._watched.put((opponent, watched)), **shown}

        return await self.models.run(work)

    async def think(self, request: Request) -> Any:
        """The probabilities at one turn of a game that was watched."""
        fields = await read_fields(request, "game", "turn")
        found = self._watched.get(fields.key("game"))
        if found is None:
            raise Refused(404, "this game is forgotten: watch another one")
        opponent, watched = found
        turn = fields.number("turn", len(watched.game.turns) - 1)
        chances = await self.models.run(lambda stop: opponent.chances(watched, turn, stop))
        return {"chances": show_chances(chances, watched.game.turns[turn].guess)}

    async def board(self, request: Request) -> Any:
        """What a player answers on a board that somebody made."""
        fields = await read_fields(request, "player", "rows")
        key = fields.one_of("player", self._lobby.choices)
        clues = fields.clues("rows", most=12)

        def work(stop: Stop) -> Any:
            opponent = self._lobby.get(key)
            most = opponent.rules.max_turns
            if len(clues) >= most:
                raise Refused(422, f"rows must leave a turn: {most - 1} guesses at most")
            state = State(clues, len(clues), most)
            asked = opponent.ask(state, stop)
            facts = self._lobby.judge(opponent).judge(state, asked.guess)
            return {**show_asked(asked), "facts": show_facts(facts), "player": opponent.name}

        return await self.models.run(work)

    async def games(self, request: Request) -> Any:
        """A page of the list of a run's games."""
        fields = await read_fields(request, "file", "page", "secret", "won")
        file, page = fields.one_of("file", FILES), fields.number("page", _MOST_NUMBER)
        secret = fields.word("secret") if fields.has("secret") else None
        won = fields.one_of("won", ("yes", "no")) == "yes" if fields.has("won") else None
        run = self._need_run()
        return await self.files.run(lambda _: run.games[file].search(page, secret, won))

    async def replay(self, request: Request) -> Any:
        """One game of a run, with the facts of each turn."""
        fields = await read_fields(request, "file", "number")
        file, number = fields.one_of("file", FILES), fields.number("number", _MOST_NUMBER)
        run = self._need_run()
        record = await self.files.run(lambda _: run.games[file].record(number))
        return await self.models.run(lambda _: run.explain(record))

    async def follow(self, request: Request) -> Any:
        """How far a run is."""
        await read_fields(request)
        run = self._need_run()
        return await self.files.run(lambda _: run.follow())

    def _match(self, fields: Fields) -> Match:
        match = self._matches.get(fields.key("match"))
        if match is None:
            raise Refused(404, "this game is forgotten: begin a new one")
        return match

    def _need_run(self) -> RunView:
        if self._run is None:
            raise Refused(404, "no run was named: start the command with --run outputs/<run>")
        return self._run


async def read_fields(request: Request, *known: str) -> Fields:
    """The fields of a request. Raises Refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "the body must be application/json")
    return Fields(await request.body(), known)


def build_app(page: Page) -> Starlette:
    """The application, to be wrapped into a Guard."""
    questions: dict[str, Callable[[Request], Awaitable[Any]]] = {
        "about": page.about, "new": page.new, "guess": page.guess, "give_up": page.give_up,
        "watch": page.watch, "think": page.think, "board": page.board, "games": page.games,
        "replay": page.replay, "follow": page.follow,
    }  # fmt: skip
    routes = [Route(f"/api/{name}", _answer(ask), methods=["POST"]) for name, ask in
              questions.items()]  # fmt: skip
    routes += [Route(path, _file(*file), methods=["GET"]) for path, file in _files().items()]
    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: _no_such_page, Refused: _refused, Exception: _bug},
    )


def _answer(ask: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await ask(request))
        except NotAllowed as error:
            raise Refused(422, str(error)) from None
        except Abandoned:
            raise Refused(504, "nobody waited for this any more") from None
        # A player that cannot be loaded or asked, or a damaged file.
        except (ValueError, NotFinite, OSError, Failed) as error:
            raise Refused(409, one_line(error)) from None
        except ModuleNotFoundError as error:
            if (advice := missing(error)) is None:
                raise
            raise Refused(409, advice) from None

    return endpoint


def one_line(error: BaseException) -> str:
    """What an error says, in one line that no terminal obeys."""
    said = error.message if isinstance(error, Failed) else str(error)
    return printable(" ".join(said.split()))


def _file(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


def _files() -> dict[str, tuple[bytes, str]]:
    """The page's own files by path, read once: a request names no file of the machine."""
    files = {}
    for file in resources.files("wordle_rl.web").joinpath("static").iterdir():
        path = "/" if file.name == "index.html" else f"/{file.name}"
        files[path] = (file.read_bytes(), _KINDS[file.name.rpartition(".")[2]])
    return files


async def _no_such_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return as_json(Refused(error.status_code, str(error.detail).lower()))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return as_json(error)


async def _bug(request: Request, error: Exception) -> Response:
    """The answer to a request that broke the program. The terminal shows the error itself."""
    return as_json(Refused(500, "this broke the program: its terminal says why"))
