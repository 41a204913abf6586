"""wordle-rl play: a page to watch a model or a solver, and to play beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wordle_rl.web.opponent import Opponent
    from wordle_rl.words.lists import WordLists

_OPTIONS = ("model", "run", "player", "checkpoint")
_TABLE = ("limit", "samples", "show", "compare", "json", "output_dir", "history")  # of eval.py


def play(
    settings: Annotated[
        list[str] | None, typer.Argument(help="of eval.py for it, such as sampling.grammar=words")
    ] = None,
    model: Annotated[str | None, typer.Option(help="a model of conf/model [default: mini]")] = None,
    run: Annotated[str | None, typer.Option(help="a run folder, or latest")] = None,
    player: Annotated[str | None, typer.Option(help="a solver, such as entropy")] = None,
    checkpoint: Annotated[str, typer.Option(help="of the run: best, last or start")] = "best",
    secret: Annotated[str | None, typer.Option(help="to watch first [default: any]")] = None,
    port: Annotated[int, typer.Option(help="of the page, 0 for any free one")] = 0,
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Open a page: type a secret for a model or a solver, play beside it, ask it on any board."""
    from wordle_rl.data.rows import read_word
    from wordle_rl.runs.folder import find_run
    from wordle_rl.runs.instantiate import ConfigError, check_choice
    from wordle_rl.web.opponent import CHECKPOINTS, SCRIPTED, list_choices
    from wordle_rl.web.server import Page, check_allowed, serve

    if sum(option is not None for option in (model, run, player)) > 1:
        raise ConfigError("give one of --model, --run and --player")
    if player is not None:
        check_choice("--player", player, tuple(SCRIPTED))
    check_choice("--checkpoint", checkpoint, tuple(CHECKPOINTS))
    if secret is not None:
        secret = read_word("secret", secret)
    _check_settings(settings or [])
    folder = None if run is None else find_run(run, "--run")
    choices = list_choices(
        model=model, player=player, run=folder, checkpoint=checkpoint, given=settings or []
    )
    key, choice = next(iter(choices.items()))
    lists = load_lists(*choice.given, **choice.settings)  # a wrong setting ends the command here
    if secret is not None:
        check_allowed(secret, lists.allowed_set)
    page = Page(choices, load_opponent, secret)
    page.thread.submit(page.player, key).result()
    serve(page, port=port, browser=browser)


def load_opponent(
    *settings: str,
    model: str | None = None,
    player: str | None = None,
    run: str | None = None,
    checkpoint: str = "best",
) -> Opponent:
    """A player to watch, as eval.py would load it with these settings. Raises ValueError."""
    from wordle_rl.commands.eval_players import load_player
    from wordle_rl.web.opponent import Opponent

    overrides = _settings(settings, run, checkpoint)
    entrant = load_player(model=model, player=player, run=run, settings=overrides)
    return Opponent(
        knowledge=entrant.knowledge,
        rules=entrant.rules,
        rewards=entrant.rewards,
        secrets=entrant.secrets,
        seat=lambda: entrant.seat(0),
    )


def load_lists(
    *settings: str,
    model: str | None = None,
    player: str | None = None,
    run: str | None = None,
    checkpoint: str = "best",
) -> WordLists:
    """The word lists of load_opponent's player, which is not loaded. Raises ValueError."""
    from wordle_rl.commands.eval_players import load_word_lists

    overrides = _settings(settings, run, checkpoint)
    return load_word_lists(model=model, player=player, run=run, settings=overrides)


def _settings(settings: Sequence[str], run: str | None, checkpoint: str) -> list[str]:
    return [*settings, *([] if run is None else [f"checkpoint={checkpoint}"])]


def _check_settings(settings: Sequence[str]) -> None:
    """Refuse settings of eval.py that would change nothing here."""
    from wordle_rl.runs.instantiate import ConfigError

    for setting in settings:
        name = setting.partition("=")[0]
        if name in _OPTIONS:
            raise ConfigError(f"{setting}: write --{setting.replace('=', ' ', 1)}")
        if name.partition(".")[0] in _TABLE:
            raise ConfigError(f"{name} is for the games of eval.py, not for the page: leave it out")
