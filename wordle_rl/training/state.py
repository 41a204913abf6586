"""What a run reads back of its own files when it goes on; somebody else may have written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.folder import RunFolderError
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries, read_object

STATE = "state.json"  # in a checkpoint: all but weights and optimiser
_STATE: dict[str, Any] = {
    "step": int,
    "best": list[float],  # none before the first validation, else three; of earlier versions two
    "best_step": int,
    "totals": dict[str, float],
    "failures": int,
    "curriculum": dict,
}
_NUMBER = float | None
_REPORT: dict[str, Any] = {  # what report_table() shows
    "player": str, "split": str, "games": int, "win_rate": float, "win_rate_low": float,
    "win_rate_high": float, "mean_guesses": _NUMBER, "mean_guesses_with_losses": float,
    "mean_guesses_with_losses_high": _NUMBER, "format_compliance": _NUMBER, "non_words": _NUMBER,
    "repeats": _NUMBER, "consistency": _NUMBER, "bits_ratio": _NUMBER, "regret": _NUMBER,
    "consistency_placed": _NUMBER, "consistency_elsewhere": _NUMBER, "consistency_absent": _NUMBER,
    "expected_remaining": _NUMBER, "by_turn": dict[str, dict], "histogram": dict[str, int],
    "most_common_guesses": list[list],
}  # fmt: skip
_LATER = {  # that reports of earlier versions lack
    "out_of_time": int, "distinct_openers": _NUMBER, "reward": float,
    "reward_parts": dict[str, float],
}  # fmt: skip
_RULES = {"max_turns": int, "invalid": str, "unparsable": str, "hard_mode": bool}


def read_state(checkpoint: Path) -> dict[str, Any]:
    """state.json of a checkpoint's folder. Raises CheckpointError naming it."""
    path = checkpoint / STATE
    try:
        state = read_object(path)
        check_all_entries(path, state, _STATE)
        if min(state["step"], state["best_step"], state["failures"]) < 0:
            raise FolderError(f"{path}: step, best_step and failures must be 0 or more")
        if len(state["best"]) not in (0, 2, 3):
            raise FolderError(f"{path}: best must be three numbers")
        if checkpoint.name != f"step_{state['step']:06d}":
            raise FolderError(f"{path}: is about step {state['step']}")
    except FileNotFoundError:
        raise CheckpointError(f"{path}: missing") from None
    except FolderError as error:
        raise CheckpointError(str(error)) from None
    return state


def read_report(path: Path) -> dict[str, Any]:
    """A summary that report_table() can show. Raises RunFolderError, and FileNotFoundError."""
    try:
        report = read_object(path)
        check_all_entries(path, report, {**_REPORT, "rules": dict})
        check_entries(path, report, _LATER)
        check_all_entries(f"{path}: rules", report["rules"], _RULES)
        for turn in report["by_turn"].values():
            check_entries(f"{path}: by_turn", turn, {"consistency": _NUMBER})
    except FolderError as error:
        raise RunFolderError(str(error)) from None
    return report
