"""Reads start.json when a run ends. The file may come from somebody else, so it is checked."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from wordle_rl.runs.folder import RunFolderError
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries, read_object

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
_LATER_ENTRIES = {  # entries that reports of earlier versions lack
    "out_of_time": int, "distinct_openers": _NUMBER, "reward": float,
    "reward_parts": dict[str, float], "lineage": str, "plurals": _NUMBER,
    "answer_guesses": _NUMBER, "opener_bits": _NUMBER, "opener_rank": _NUMBER,
}  # fmt: skip
_RULES = {"max_turns": int, "invalid": str, "unparsable": str, "hard_mode": bool}


def read_report(path: Path) -> dict[str, Any]:
    """Read a summary that report_table() can show. Raises RunFolderError or FileNotFoundError."""
    try:
        report = {_rename(name): value for name, value in read_object(path).items()}
        check_all_entries(path, report, {**_REPORT, "rules": dict})
        check_entries(path, report, _LATER_ENTRIES)
        check_all_entries(f"{path}: rules", report["rules"], _RULES)
        for turn in report["by_turn"].values():
            check_entries(f"{path}: by_turn", turn, {"consistency": _NUMBER})
    except FolderError as error:
        raise RunFolderError(str(error)) from None
    return report


def _rename(name: str) -> str:
    """The name of an entry that earlier versions called differently."""
    return name.replace("mean_guesses_losses_as_7", "mean_guesses_with_losses")


def read_start_report(path: Path) -> dict[str, Any] | None:
    """The report on the start, None without a file. Warns about a file it cannot read."""
    try:
        return read_report(path)
    except FileNotFoundError:  # trainer.report was false at the start
        return None
    except RunFolderError as error:
        warnings.warn(f"{error}; the table leaves it out", stacklevel=2)
        return None
