"""wordle-rl play: a page to play beside a model or a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wordle_rl.web.opponent import Opponent


def play(
    settings: Annotated[
        list[str] | None, typer.Argument(help="of eval.py for it, such as sampling.grammar=words")
    ] = None,
    model: Annotated[str | None, typer.Option(help="a model of conf/model [default: mini]")] = None,
    run: Annotated[str | None, typer.Option(help="a run folder, or latest")] = None,
    player: Annotated[str | None, typer.Option(help="a solver, such as entropy")] = None,
    checkpoint: Annotated[str, typer.Option(help="of the run: best, last or start")] = "best",
    secret: Annotated[str | None, typer.Option(help="of the first game [default: any]")] = None,
    port: Annotated[int, typer.Option(help="of the page, 0 for any free one")] = 0,
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Play beside a model or a solver on a page, watch it think, and ask it on any board."""
    from wordle_rl.data.rows import read_word
    from wordle_rl.runs.folder import find_run
    from wordle_rl.runs.instantiate import ConfigError, check_choice
    from wordle_rl.web.opponent import CHECKPOINTS, SCRIPTED, list_choices
    from wordle_rl.web.server import Page, pick_secret, serve

    if sum(each is not None for each in (model, run, player)) > 1:
        raise ConfigError("give one of --model, --run and --player")
    if player is not None:
        check_choice("--player", player, tuple(SCRIPTED))
    check_choice("--checkpoint", checkpoint, tuple(CHECKPOINTS))
    if secret is not None:
        secret = read_word("secret", secret)
    folder = None if run is None else find_run(run, "--run")
    choices = list_choices(
        model=model, player=player, run=folder, checkpoint=checkpoint, given=settings or []
    )
    page = Page(choices, load_opponent, secret)
    first = page.thread.submit(page.player, next(iter(choices))).result()
    pick_secret(first, secret)
    serve(page, port=port, browser=browser)


def load_opponent(
    *settings: str, model: str | None = None, player: str | None = None, run: str | None = None,
    checkpoint: str = "best",
) -> Opponent:  # fmt: skip
    """A player to watch, as eval.py would load it with these settings. Raises ValueError."""
    from wordle_rl.commands.eval_players import load_player
    from wordle_rl.web.opponent import Opponent

    given = [*settings, *([] if run is None else [f"checkpoint={checkpoint}"])]
    loaded = load_player(model=model, player=player, run=run, settings=given)
    return Opponent(
        knowledge=loaded.knowledge, rules=loaded.rules, rewards=loaded.rewards,
        secrets=loaded.secrets, seat=lambda: loaded.seat(0),
    )  # fmt: skip
