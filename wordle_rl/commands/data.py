"""wordle-rl data: makes files to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wordle_rl.runs.instantiate import ConfigError

if TYPE_CHECKING:
    from wordle_rl.game.rules import Game
    from wordle_rl.training.experiment import Experiment

Mode = Literal["rl", "sft"]
_FOREIGN_KEYS = ("seed", "data", "data.path", "data.split")  # make no sense here
_DEFAULTS = {  # by mode: choices that the command line may overrule
    "rl": ("experiment=none", "model=untrained", "history=upto4"),
    "sft": ("experiment=none", "model=untrained", "algorithm=sft", "num_generations=1"),
}


def data(
    mode: Annotated[Mode, typer.Argument(help="rl: states. sft: a scripted player's games")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="key=value", help="as for train.py, such as prompt=letters"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="a .jsonl or .parquet; default: outputs/data/<mode>.jsonl")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=10_000_000, help="states or games")] = 1000,
    seed: Annotated[int, typer.Option(help="of every draw")] = 0,
    split: Annotated[
        Literal["train", "val", "test", "all"], typer.Option(help="which secrets")
    ] = "train",
    per: Annotated[Literal["game", "answer"], typer.Option(help="what a row of sft is")] = "game",
) -> None:
    """Make a file to train on: states with 0 to 4 clues, or a scripted player's games.

    TRL reads its columns. Settings are the keys of train.py, such as words.protocol=all or
    algorithm.player=entropy. The same seed gives the same bytes.
    """
    from wordle_rl.data.write import Synthesis
    from wordle_rl.runs.files import file_digest
    from wordle_rl.runs.tables import FORMATS, write_table

    path = output or Path("outputs") / "data" / f"{mode}.jsonl"
    form = path.suffix.removeprefix(".")
    if form not in FORMATS:
        raise ConfigError(
            f"output must end in .jsonl or .parquet, whose cells hold lists, not {path.name!r}"
        )
    setup = _compose(mode, settings or [], seed)
    by_split = {"val": setup.splits.val, "test": setup.splits.test, "all": setup.words.answers}
    secrets = by_split.get(split, setup.recipe.secrets)
    source = Synthesis(recipe=setup.recipe, secrets=secrets, split=split)
    if mode == "rl":
        rows = source.states(count)
        summary = _count_clues(rows)
    else:
        games = source.games(count)
        by_answer = per == "answer" or setup.recipe.rollout.form == "fresh"
        rows = source.answer_rows(games) if by_answer else source.game_rows(games)
        summary = _count_games(games)
    write_table(path, rows, form)
    words, protocol = {row["secret"] for row in rows}, setup.config["words"]["protocol"]
    print(f"{path}: {len(rows):,} rows, {len(words):,} secrets (split {split}, {protocol=!s})")
    print(f"{summary}\nsha256: {file_digest(path)}")


def _count_clues(rows: Sequence[Mapping[str, Any]]) -> str:
    counts = sorted(Counter(row["clues"] for row in rows).items())
    return "states by clues: " + ", ".join(f"{clues}: {n:,}" for clues, n in counts)


def _count_games(games: Sequence[Game]) -> str:
    wins, guesses = sum(game.won for game in games), sum(len(game.turns) for game in games)
    return f"games: {len(games):,}, won: {wins:,}, guesses: {guesses:,}"


def _compose(mode: Mode, settings: list[str], seed: int) -> Experiment:
    """Build the parts of a training run with these settings, and check what the data need."""
    from wordle_rl.commands.build import build_experiment, resolve
    from wordle_rl.commands.resume import list_keys
    from wordle_rl.runs.config import compose_config

    keys = list_keys(settings)
    if clash := [key for key in _FOREIGN_KEYS if key in keys]:
        cure = "; use --seed" if clash[0] == "seed" else ""
        raise ConfigError(f"{clash[0]} is no setting here{cure}")
    base = [d for d in _DEFAULTS[mode] if d.partition("=")[0] not in keys]
    setup = build_experiment(resolve(compose_config("config", [*base, *settings, f"seed={seed}"])))
    recipe, imitation = setup.recipe, setup.recipe.algorithm.imitates
    if recipe.rollout.form == "tool":
        raise ConfigError("rollout.form must be conversation or fresh to make data, not tool")
    if mode == "sft" and (imitation is None or imitation.every_guess or imitation.slips):
        raise ConfigError("algorithm must be sft for data of sft, which imitates a player's games")
    if mode == "sft" and recipe.history is not None:
        raise ConfigError("history must be none for data of sft, whose games begin at the start")
    return setup
