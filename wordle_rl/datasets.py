"""Makes files to train on: python -m wordle_rl.datasets synth --mode rl|sft [settings]

rl writes states with 0 to 4 clues, sft a scripted player's games. Settings are the keys of
train.py, such as prompt=letters, words.protocol=all or algorithm.player=entropy.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from wordle_rl.build import build_experiment, resolve
from wordle_rl.data.synth import Synthesis
from wordle_rl.earlier_run import list_keys
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.config import compose_from_conf, quoted
from wordle_rl.runs.errors import describe_hydra_error, fail, run_plain, user_errors
from wordle_rl.runs.instantiate import ConfigError, check_range
from wordle_rl.runs.paths import module_command
from wordle_rl.runs.tables import FORMATS, file_digest, write_table
from wordle_rl.training.experiment import Experiment

SPLITS = ("train", "val", "test", "all")
_MOST = 10_000_000  # states or games
_OTHERS = ("data", "data.path", "data.split", "data.keep_held_out")  # keys that make no sense here
_DEFAULTS = {  # by mode: choices that the command line may overrule
    "rl": ("model=untrained", "history=upto4"),
    "sft": ("model=untrained", "algorithm=sft", "num_generations=1"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = CommandParser(
        prog=module_command("datasets"), description=(__doc__ or "").partition("\n")[0]
    )
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "synth", help="make a file of states or games"
    )
    command.add_argument("--mode", choices=tuple(_DEFAULTS), required=True)
    command.add_argument(
        "--output", "--out", dest="out", type=Path, help="default: outputs/data/<mode>.jsonl"
    )
    command.add_argument("--format", choices=FORMATS, help="default: by the extension of --out")
    command.add_argument("--count", type=int, default=1000, help="states or games (default: 1000)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--split", choices=SPLITS, default="train", help="which secrets")
    command.add_argument("--per", choices=("game", "answer"), help="what a row of sft is")
    command.add_argument("settings", nargs="*", metavar="key=value", help="as for train.py")
    given = parser.parse_args(arguments)
    with user_errors():
        for line in synthesise(given):
            print(line)


def synthesise(given: argparse.Namespace) -> list[str]:
    """Write the file. Returns what to print about it. Raises ValueError in one line."""
    check_range("--count", given.count, 1, _MOST)
    if given.per is not None and given.mode == "rl":
        raise ConfigError("--per is for --mode sft; a row of --mode rl is a state")
    path, form = _choose_file(given)
    setup = _compose(given)
    if setup.recipe.rollout.form == "tool":
        raise ConfigError("rollout.form must be conversation or fresh to make data, not tool")
    held_out = {"val": setup.splits.val, "test": setup.splits.test, "all": setup.words.answers}
    secrets = held_out.get(given.split, setup.recipe.secrets)
    source = Synthesis(recipe=setup.recipe, secrets=secrets, split=given.split)
    if given.mode == "rl":
        rows = source.states(given.count)
        counts = sorted(Counter(row["clues"] for row in rows).items())
        about = ["states by clues: " + ", ".join(f"{k}: {n:,}" for k, n in counts)]
    else:
        _check_games(setup)
        games = source.games(given.count)
        by_answer = given.per == "answer" or setup.recipe.rollout.form == "fresh"
        rows = source.answer_rows(games) if by_answer else source.game_rows(games)
        won, guesses = sum(game.won for game in games), sum(len(game.turns) for game in games)
        about = [f"games: {len(games):,}, won: {won:,}, guesses: {guesses:,}"]
    write_table(path, rows, form)
    played, protocol = {row["secret"] for row in rows}, setup.config["words"]["protocol"]
    return [
        f"{path}: {len(rows):,} rows, {len(played):,} secrets (split {given.split}, "
        f"protocol {protocol})",
        *about,
        f"sha256: {file_digest(path)}",
    ]


def _choose_file(given: argparse.Namespace) -> tuple[Path, str]:
    """The file to write, and its format."""
    form = given.format
    path = given.out or Path("outputs") / "data" / f"{given.mode}.{form or FORMATS[0]}"
    if form is None:
        form = path.suffix.lower().removeprefix(".")
        if form not in FORMATS:
            raise ConfigError(
                f"--out must end in .jsonl or .parquet without --format, not {path.name!r}"
            )
    return path, form


def _compose(given: argparse.Namespace) -> Experiment:
    """Build the parts of a training run with these settings."""
    from hydra import compose
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    keys = list_keys(given.settings)
    if taken := [key for key in ("seed", *_OTHERS) if key in keys]:
        raise ConfigError(f"{taken[0]} is no setting here" + "; use --seed" * (taken[0] == "seed"))
    overrides = [d for d in _DEFAULTS[given.mode] if d.partition("=")[0] not in keys]
    overrides = [quoted(override) for override in (*overrides, *given.settings)]
    overrides.append(f"seed={given.seed}")
    try:
        with compose_from_conf():
            return build_experiment(resolve(compose("config", overrides=overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        fail(describe_hydra_error(error))


def _check_games(setup: Experiment) -> None:
    recipe, taught = setup.recipe, setup.recipe.algorithm.imitates
    if taught is None or taught.choices or taught.slips:
        raise ConfigError("algorithm must be sft with --mode sft, which imitates a player's games")
    if recipe.history is not None:
        raise ConfigError("history must be none with --mode sft, whose games begin at the start")


if __name__ == "__main__":
    run_plain(main)
