"""Plays Wordle against a run, a model or a solver, on a page: python -m wordle_rl.play

The page also shows what a model thinks, answers on a board that you make, replays the games of a
run and follows one that is training. It is served on this machine alone. --terminal plays in the
terminal.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
import sys
from collections.abc import Sequence

from wordle_rl import cli
from wordle_rl.evaluate import broken_weights_told
from wordle_rl.opponents import CHECKPOINTS, PLAYERS, Loader, list_choices
from wordle_rl.runs.checks import check_choice
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, check_range
from wordle_rl.runs.listing import find_run
from wordle_rl.runs.paths import CONF, ROOT, module_command
from wordle_rl.runs.untrusted import printable
from wordle_rl.web.lobby import Lobby

DEFAULT_MODEL = "mini"
_PORTS = (0, 65_535)


def _model_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (CONF / "model").glob("*.yaml")))


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line, each of them checked. Raises ValueError in one line."""
    parser = CommandParser(
        prog=module_command("play"),
        description="Play Wordle against a player, and watch it think.",
    )
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--model", metavar="NAME", help=f"a model (default {DEFAULT_MODEL})")
    against.add_argument("--run", metavar="FOLDER", help="a run, or latest: the newest in outputs")
    against.add_argument("--player", metavar="NAME", help=f"a solver: {', '.join(PLAYERS)}")
    parser.add_argument("--checkpoint", default="best", help="of the run: best, last or start")
    parser.add_argument("--secret", metavar="WORD", help="of the first game (default: by chance)")
    parser.add_argument("--port", type=int, default=0, help="of the page (default: any free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")
    parser.add_argument("--terminal", action="store_true", help="play here, without a page")
    options = parser.parse_args(arguments)
    if options.model is None and options.run is None and options.player is None:
        options.model = DEFAULT_MODEL
    if options.model is not None:
        check_choice("--model", options.model, _model_names())
    if options.player is not None:
        check_choice("--player", options.player, tuple(PLAYERS))
    check_choice("--checkpoint", options.checkpoint, CHECKPOINTS)
    if options.checkpoint != "best" and options.run is None:
        raise ConfigError("--checkpoint needs --run outputs/<run>")
    check_range("--port", options.port, *_PORTS)
    if options.secret is not None:
        options.secret = options.secret.lower()
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code."""
    cli.shorten_spins()
    with user_errors():
        options = read_options(arguments)
        run = None
        if options.run is not None:
            run = find_run(options.run, "--run", ROOT, ROOT / "outputs")
        loader = Loader()
        lobby = Lobby(
            list_choices(
                loader, model=options.model, run=run, checkpoint=options.checkpoint,
                player=options.player,
            ),
            rival=None if run or options.player == "entropy" else "entropy",
        )  # fmt: skip
    if options.terminal:
        from wordle_rl.play_terminal import TerminalTable

        with user_errors(), broken_weights_told():
            table = TerminalTable(lobby, sys.stdout.isatty(), options.secret)
        table.run(sys.stdin)
        return 0
    open_page(lobby, loader, run, options)
    return 0


def open_page(
    lobby: Lobby, loader: Loader, run: RunFolder | None, options: argparse.Namespace
) -> None:
    """Load the first player and serve the page."""
    with user_errors():
        from wordle_rl.web.app import Page
        from wordle_rl.web.match import pick_secret
        from wordle_rl.web.run_view import RunView
        from wordle_rl.web.server import serve

        view = None if run is None else RunView(run, lambda: loader.judge(run))
        page = Page(lobby, view, options.secret)
        try:  # in the thread that will use it
            first = page.models.call(lambda _: lobby.get(lobby.first))
        except ValueError as error:
            if run is None:
                raise
            # A run that has no checkpoint yet can be followed all the same.
            print(f"note: {printable(str(error))}", flush=True)
        else:
            pick_secret(first, options.secret)
        serve(page, port=options.port, open_browser=not options.no_browser)


if __name__ == "__main__":
    run_plain(main)
