"""The files of a run's reports: start.json, and the games in start_games.jsonl, best_games.jsonl.

Those of the start are read when a run ends.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.summary import game_record
from wordle_rl.game.rules import Game, GameStatus, Rules
from wordle_rl.runs.files import (
    FolderError,
    StepLog,
    check_all_entries,
    check_entries,
    json_bytes,
    read_object,
    write_bytes,
)
from wordle_rl.runs.folder import RunFolderError
from wordle_rl.words.lists import WORD_LENGTH

_NUMBER = float | None
_REPORT: dict[str, Any] = {  # entries that report_table() shows
    "player": str, "split": str, "games": int, "win_rate": float, "win_rate_low": float,
    "win_rate_high": float, "mean_guesses": _NUMBER, "mean_guesses_with_losses": float,
    "mean_guesses_with_losses_high": _NUMBER, "format_compliance": _NUMBER, "non_words": _NUMBER,
    "repeats": _NUMBER, "consistency": _NUMBER, "bits_ratio": _NUMBER, "regret": _NUMBER,
    "consistency_placed": _NUMBER, "consistency_elsewhere": _NUMBER, "consistency_absent": _NUMBER,
    "expected_remaining": _NUMBER, "by_turn": dict[str, dict], "histogram": dict[str, int],
    "most_common_guesses": list[list],
}  # fmt: skip
_NOT_ALWAYS = {  # entries that depend on the games and on the settings
    "out_of_time": int, "distinct_openers": _NUMBER, "reward": float,
    "reward_parts": dict[str, float], "lineage": str, "plurals": _NUMBER,
    "turns": int, "tokens_per_answer": _NUMBER,
    "later_turns": int, "later_guess": str | None, "later_guess_count": int,
    "answer_guesses": _NUMBER, "opener_bits": _NUMBER, "opener_rank": _NUMBER,
}  # fmt: skip
_OF_EVAL = ("by_depth", "pass_at")  # only eval.py writes these, so they are not read
_GAME = {
    "secret": str, "status": str, "guesses": list[str | None],
    "reasons": list[str | None],
}  # fmt: skip
_WORD = re.compile(f"[a-z]{{{WORD_LENGTH}}}")
_RULES = {"max_turns": int, "invalid": str, "unparsable": str, "hard_mode": bool}


def read_report(path: Path) -> dict[str, Any]:
    """Read a summary that report_table() can show. Raises RunFolderError or FileNotFoundError."""
    try:
        report = {k: v for k, v in read_object(path).items() if k not in _OF_EVAL}
        check_all_entries(path, report, {**_REPORT, "rules": dict})
        check_entries(path, report, _NOT_ALWAYS)
        check_all_entries(f"{path}: rules", report["rules"], _RULES)
        for turn in report["by_turn"].values():
            check_entries(f"{path}: by_turn", turn, {"consistency": _NUMBER})
    except FolderError as error:
        raise RunFolderError(str(error)) from None
    return report


def read_start_report(path: Path) -> dict[str, Any] | None:
    """The report on the start, None without a file. Warns about a file it cannot read."""
    try:
        return read_report(path)
    except FileNotFoundError:  # trainer.report was false at the start
        return None
    except RunFolderError as error:
        warnings.warn(f"{error}; the table leaves it out", stacklevel=2)
        return None


def write_report_games(path: Path, games: Sequence[Game], step: int = 0) -> None:
    """Write the games of a report in the format of games.jsonl. step: the step of the model."""
    records = ({"step": step, "split": "test", **game_record(game)} for game in games)
    write_bytes(path, b"".join(map(json_bytes, records)))


def read_start_games(
    path: Path, secrets: Sequence[str], allowed: Container[str], rules: Rules
) -> list[Game]:
    """The games of the report on the start, one per secret; none without the file.

    Warns about a file that it cannot read, or that is about other secrets or rules.
    """
    try:
        games = [_replay(path, record, allowed, rules) for record in StepLog(path).read()]
        if games and [game.secret for game in games] != list(secrets):
            raise FolderError(f"{path}: its games are on other secrets")
    except FolderError as error:
        warnings.warn(f"{error}; no boards are shown", stacklevel=2)
        return []
    return games


def _replay(path: Path, record: dict[str, Any], allowed: Container[str], rules: Rules) -> Game:
    """Play the guesses of a record again. Raises FolderError if the game ends otherwise."""
    check_all_entries(path, record, _GAME)
    game = Game(record["secret"], allowed, rules)
    words = [game.secret, *(guess for guess in record["guesses"] if guess is not None)]
    try:
        if not all(map(_WORD.fullmatch, words)):
            raise ValueError("not a word")
        for guess, reason in zip(record["guesses"], record["reasons"], strict=True):
            game.play(guess, reason=reason)
        if game.status is GameStatus.PLAYING:  # its time was up, or its context full
            game.forfeit(GameStatus(record["status"]))
        if game.status != record["status"]:
            raise ValueError("another end")
    except ValueError:
        raise FolderError(f"{path}: {game.secret[:5]!r} was not played by these rules") from None
    return game
