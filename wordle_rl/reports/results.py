"""How one player did on some secrets: from the report of a run, or from one of its validations.

Shares are in 0..1, and None where they were not measured. Intervals are 95 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.intervals import Z95, standard_error, win_interval
from wordle_rl.reports.boards import Board
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries

_NUMBER = float | None
_NEEDED: dict[str, Any] = {
    "games": int, "win_rate": float, "win_rate_low": float, "win_rate_high": float,
    "mean_guesses_with_losses": float,
}  # fmt: skip
# Entries of a report -> the metric of a validation that measures the same, without its "val/".
MEASURES: dict[str, str | None] = {
    "format_compliance": None, "non_words": None, "repeats": None,
    "consistency": "skill/consistency", "consistency_placed": "skill/consistency_placed",
    "consistency_elsewhere": "skill/consistency_elsewhere",
    "consistency_absent": "skill/consistency_absent", "bits_gained": "skill/bits_gained",
    "bits_ratio": "skill/bits_ratio", "expected_remaining": "skill/expected_remaining",
    "regret": "skill/regret", "plurals": "skill/plurals",
    "answer_guesses": "skill/answer_guesses", "opener_bits": "skill/opener_bits",
    "opener_rank": "skill/opener_rank", "distinct_openers": "distinct_openers",
    "tokens_per_answer": "tokens_per_answer", "reward": "reward",
}  # fmt: skip
BY_TURN = ("consistency", "bits_ratio")
_TURNS = 6  # whose skill a run measures
_KINDS: dict[str, Any] = {
    **dict.fromkeys(MEASURES, _NUMBER),
    "mean_guesses_with_losses_low": _NUMBER, "mean_guesses_with_losses_high": _NUMBER,
    "histogram": dict[str, int], "by_turn": dict[str, dict], "lineage": str, "split": str,
    "rules": dict,
}  # fmt: skip
_MOST = 1e9  # of any number that is shown
MAX_TURNS = 6  # where a report does not say

Measures = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with its interval, if that is known."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """One player on some secrets."""

    label: str
    games: int
    wins: Estimate  # share of games
    guesses: Estimate  # mean, a lost game as one more than the turns
    measures: Measures = field(default_factory=dict)
    histogram: Mapping[str, int] = field(default_factory=dict)
    by_turn: Mapping[str, Measures] = field(default_factory=dict)
    boards: tuple[Board, ...] = ()  # empty where the games were not written
    lineage: str = ""
    max_turns: int = MAX_TURNS
    hard_mode: bool = False
    step: int = 0  # training steps that the player had seen

    @property
    def by_secret(self) -> dict[str, tuple[float, float]]:
        """Secret -> share of its games that were won, and mean guesses with losses."""
        found: dict[str, list[Board]] = {}
        for board in self.boards:
            found.setdefault(board.secret, []).append(board)
        return {
            secret: (
                sum(board.won for board in boards) / len(boards),
                sum(guesses_of(board, self.max_turns) for board in boards) / len(boards),
            )
            for secret, boards in found.items()
        }


def guesses_of(board: Board, max_turns: int) -> int:
    """Guesses of a game, one more than the turns if it was lost."""
    return min(len(board.rows), max_turns) if board.won else max_turns + 1


def number(value: object) -> float | None:
    """A value as a number that can be shown, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _MOST else None


def from_report(
    place: Path, report: Mapping[str, Any], *, label: str, step: int, boards: Sequence[Board]
) -> Result:
    """The result in a start.json or summary.json. Raises FolderError for other types than ours.

    place: the file, for the message.
    """
    renamed = {
        name.replace("mean_guesses_losses_as_7", "mean_guesses_with_losses"): value
        for name, value in report.items()  # earlier versions called it so
    }
    check_all_entries(place, renamed, _NEEDED)
    check_entries(place, renamed, _KINDS)
    rules = renamed.get("rules", {})
    check_entries(f"{place}: rules", rules, {"max_turns": int, "hard_mode": bool})
    for name in _NEEDED:
        if not 0 <= renamed[name] <= _MOST or (name.startswith("win") and renamed[name] > 1):
            raise FolderError(f"{place}: {name} is out of range")
    by_turn = {
        str(turn): _pick(values, BY_TURN) for turn, values in renamed.get("by_turn", {}).items()
    }
    guesses = "mean_guesses_with_losses"
    return Result(
        label=label, step=step, games=renamed["games"], boards=tuple(boards),
        wins=Estimate(
            value=renamed["win_rate"], low=renamed["win_rate_low"], high=renamed["win_rate_high"]
        ),
        guesses=Estimate(
            value=renamed[guesses], low=number(renamed.get(f"{guesses}_low")),
            high=number(renamed.get(f"{guesses}_high")),
        ),
        measures=_pick(renamed, MEASURES), histogram=_read_counts(renamed.get("histogram", {})),
        by_turn=by_turn, lineage=renamed.get("lineage", ""),
        max_turns=min(max(rules.get("max_turns", MAX_TURNS), 1), 100),
        hard_mode=rules.get("hard_mode", False),
    )  # fmt: skip


def from_validation(
    record: Mapping[str, Any], boards: Sequence[Board], *, label: str, max_turns: int
) -> Result | None:
    """The result of one validation, None if the record has none.

    record: the metrics of its step. boards: all its games, or none.
    """
    rate, mean = (number(record.get(f"val/{k}")) for k in ("win_rate", "mean_guesses_with_losses"))
    if boards:
        wins, guesses = summarise_boards(boards, max_turns)
        if mean is not None:  # a retry uses no turn, which a board does not show
            shift = mean - guesses.value
            ends = [None if end is None else end + shift for end in (guesses.low, guesses.high)]
            guesses = Estimate(value=mean, low=ends[0], high=ends[1])
    elif rate is not None and mean is not None and 0 <= rate <= 1:
        wins, guesses = Estimate(value=rate), Estimate(value=mean)
    else:
        return None
    found = {n: number(record.get(f"val/{metric}")) for n, metric in MEASURES.items() if metric}
    by_turn = {
        str(turn): {n: number(record.get(f"val/skill/turn_{turn}/{n}")) for n in BY_TURN}
        for turn in range(1, _TURNS + 1)
    }
    return Result(
        label=label, step=int(record["step"]), games=len(boards), wins=wins, guesses=guesses,
        measures=found, histogram=count_guesses(boards, max_turns), boards=tuple(boards),
        by_turn={turn: values for turn, values in by_turn.items() if any(values.values())},
        max_turns=max_turns,
    )  # fmt: skip


def summarise_boards(boards: Sequence[Board], max_turns: int) -> tuple[Estimate, Estimate]:
    """Wins and mean guesses of some games. Games on one secret are not independent."""
    return summarise_guesses(
        [guesses_of(board, max_turns) for board in boards],
        [board.secret for board in boards],
        max_turns,
    )


def summarise_guesses(
    needed: Sequence[int], secrets: Sequence[str], max_turns: int
) -> tuple[Estimate, Estimate]:
    """Wins and mean guesses. needed: guesses of each game, max_turns + 1 for a lost one."""
    won = [float(guesses <= max_turns) for guesses in needed]
    low, high = win_interval(won, secrets)
    mean = sum(needed) / len(needed)
    error = standard_error([float(guesses) for guesses in needed], secrets)
    half = None if error is None else Z95 * error
    return (
        Estimate(value=sum(won) / len(won), low=low, high=high),
        Estimate(
            value=mean,
            low=None if half is None else mean - half,
            high=None if half is None else mean + half,
        ),
    )


def count_guesses(boards: Sequence[Board], max_turns: int) -> dict[str, int]:
    """Number of guesses -> games, as in a report. Empty without games."""
    if not boards:
        return {}
    counts = Counter(guesses_of(board, max_turns) for board in boards)
    return {
        **{str(turn): counts[turn] for turn in range(1, max_turns + 1)},
        "lost": counts[max_turns + 1],
    }


def _read_counts(histogram: Mapping[str, int]) -> dict[str, int]:
    """A histogram without what no game can have."""
    known = {"lost", *map(str, range(1, 101))}  # rules allow 100 turns
    return {
        label: count for label, count in histogram.items() if label in known and 0 <= count <= _MOST
    }


def _pick(values: Mapping[str, Any], names: Mapping[str, Any] | Sequence[str]) -> Measures:
    return {name: number(values.get(name)) for name in names}
