"""Measures what training taught: python -m wordle_rl.learnt outputs/<run> [<run> ...].

The runs must begin with the same model, such as runs that differ in their seed. Plays the secrets
of eval.py with that model, with the best checkpoint of each run, and with two scripted players.
Writes learnt.json and two pictures, and prints tables in Markdown. docs/LEARNT.md explains them.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wordle_rl.build_parts import PLAYERS
from wordle_rl.evaluation.learnt import Cast, Games, Played, measure
from wordle_rl.learnt_pictures import draw_passes, draw_summary
from wordle_rl.learnt_tables import write_tables
from wordle_rl.loaded_player import LoadedPlayer, load_player
from wordle_rl.pictures import one_line_errors
from wordle_rl.runs.checks import MOST_SAMPLES, check_seed
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.files import write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import MOST, ConfigError, check_above_zero, check_range
from wordle_rl.runs.listing import find_run
from wordle_rl.runs.paths import ROOT, module_command
from wordle_rl.runs.untrusted import printable
from wordle_rl.training.progress import announce

_SAMPLES = 16  # games on each secret
_TEMPERATURES = (0.7, 1.0)
_SAME = ("model", "revision", "init_from", "digests", "prompt", "form")  # in the manifests


def check_same_start(folders: Sequence[RunFolder]) -> None:
    """Raise ConfigError unless all runs began with one model, and play by the same words."""
    first = folders[0].manifest()
    for folder in folders[1:]:
        other = folder.manifest()
        if unlike := [key for key in _SAME if first.get(key) != other.get(key)]:
            raise ConfigError(
                f"the runs must have the same {unlike[0]}, not those of {folders[0].path.name} and "
                f"{folder.path.name}: compare runs that differ in seed or settings of training"
            )


def play_all(folders: Sequence[RunFolder], chosen: argparse.Namespace) -> tuple[Cast, LoadedPlayer]:
    """Everybody's games, and the start as a player. Raises ValueError."""
    start, player = _play(folders[0], "start", chosen)
    trained = [_play(folder, "best", chosen)[0] for folder in folders]
    tournament = replace(
        player.tournament, settings=replace(player.tournament.settings, samples=chosen.samples)
    )
    scripted = {
        name: tournament.scripted(PLAYERS[name](player.knowledge), player.rewards)
        for name in ("random_consistent_allowed", "entropy_allowed")
    }
    teacher = tournament.games(scripted["random_consistent_allowed"])
    solver = tournament.games(replace(scripted["entropy_allowed"], samples=1))
    return Cast(start=start, trained=trained, teacher=teacher, solver=solver), player


def _play(
    folder: RunFolder, checkpoint: str, chosen: argparse.Namespace
) -> tuple[Played, LoadedPlayer]:
    """A model's greedy and drawn games, and the greedy player."""
    settings = [f"checkpoint={checkpoint}", f"seed={chosen.seed}"]
    settings += [] if chosen.limit is None else [f"limit={chosen.limit}"]

    def load(*more: str) -> LoadedPlayer:
        return load_player(run=str(folder.path), settings=[*settings, *more])

    player = load()
    greedy = player.tournament.games(player.contestant)
    drawn: dict[str, Games] = {}
    for temperature in chosen.temperatures:
        sampling = ["sampling=default", f"sampling.temperature={temperature}"]
        other = load(f"samples={chosen.samples}", *sampling)
        drawn[f"{temperature:g}"] = other.tournament.games(other.contestant)
    return Played(greedy=greedy, drawn=drawn), player


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = CommandParser(
        prog=module_command("learnt"), description="Measure what training taught."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders with one start")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="default learnt in the first run's folder"
    )
    parser.add_argument(
        "--samples", type=int, default=_SAMPLES,
        help="drawn games of each player on each secret (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--temperatures", type=float, nargs="+", default=_TEMPERATURES, metavar="T",
        help="of the drawn guesses; all tables but pass@k show the first (default: 0.7 1)",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, help="most secrets to play (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    with user_errors():
        check_range("--samples", chosen.samples, 2, MOST_SAMPLES)
        check_seed("--seed", chosen.seed)
        if chosen.limit is not None:
            check_range("--limit", chosen.limit, 1, MOST)
        for temperature in chosen.temperatures:
            check_above_zero("--temperatures", temperature, MOST)
        folders = [find_run(run, "run", ROOT, ROOT / "outputs") for run in chosen.runs]
        check_same_start(folders)
        out = chosen.output or folders[0].path / "learnt"
        games, player = play_all(folders, chosen)
        with announce("judging the games"):
            numbers = measure(games, player.knowledge, player.rules.max_turns)
    with one_line_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "learnt.json", numbers)
        draw_summary(numbers, out / "learnt.png")
        draw_passes(numbers, out / "learnt_attempts.png")
    print(f"{write_tables(numbers)}\n\n{printable(str(out))}")
    return 0


if __name__ == "__main__":
    run_plain(main)
