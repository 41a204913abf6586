"""games.csv.xz: the validation games from which a study's effects are computed, one line a game.

A trial is judged by the games of its last validation. A measure over time uses every validation.
The file also has the games of the start, at step 0. Every line holds all that a script needs:
round, trial, arm, seed, step, secret, and the guesses with a blank between them. A guess that the
rules refused ends with !, and an answer without a readable guess is -.
"""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import FolderError, read_file
from wordle_rl.sweeps.results import JudgedGame
from wordle_rl.sweeps.space import format_params

FILE = "games.csv.xz"
_MOST_TEXT = 200_000_000  # bytes of an unpacked file
_COLUMNS = ("round", "trial", "arm", "seed", "step", "secret", "guesses")
UNREADABLE, REFUSED = "-", "!"


Key = tuple[bool, int]  # confirms and trial, which name a trial
Games = Mapping[Key, Sequence[JudgedGame]]


def format_arm(arm: Mapping[str, Any]) -> str:
    """The name of an arm alone, or all parameters of a study without arms."""
    return str(arm["arm"]) if arm.keys() == {"arm"} else format_params(arm)


def pack_games(games: Games) -> bytes:
    """The bytes of games.csv.xz, the same for the same games."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for trial in games.values():
        for g in trial:
            part = "confirmation" if g.confirms else "search"
            writer.writerow([part, g.trial, g.arm, g.seed, g.step, g.secret, " ".join(g.guesses)])
    return lzma.compress(out.getvalue().encode(), preset=9)


def read_games(folder: Path) -> dict[Key, list[JudgedGame]]:
    """The games in a study's games.csv.xz; none without the file. Raises FolderError."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        unpacking = lzma.LZMADecompressor()
        text = unpacking.decompress(read_file(path), _MOST_TEXT).decode()
        if not unpacking.eof:
            raise ValueError("cut off, or too long")
        found: dict[Key, list[JudgedGame]] = {}
        for row in csv.DictReader(io.StringIO(text)):
            game = JudgedGame(
                confirms=row["round"] == "confirmation", trial=int(row["trial"]), arm=row["arm"],
                seed=int(row["seed"]), step=int(row["step"]), secret=row["secret"],
                guesses=tuple(row["guesses"].split()),
            )  # fmt: skip
            found.setdefault((game.confirms, game.trial), []).append(game)
    except (lzma.LZMAError, EOFError, KeyError, TypeError, ValueError, AttributeError):
        raise FolderError(f"{path}: not a table of games") from None
    return found
