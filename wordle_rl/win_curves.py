"""The wins of a run over its steps, as curves to draw: read from its folder or metrics file alone.

plot_wins.py draws them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wordle_rl.evaluation.intervals import win_interval
from wordle_rl.pictures import PlotError, read_lineage, read_reports, run_name
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.untrusted import FolderError, check_all_entries, check_entries

_RATES = ("train/win_rate", "val/win_rate", "watch/train/win_rate", "watch/test/win_rate")
GUESSES = "mean_guesses_with_losses"
_MEANS = tuple(f"{which}/{GUESSES}" for which in ("val", "watch/train", "watch/test"))
_MOST = {  # of what is drawn
    **dict.fromkeys(("step", "train/games", "train/wins"), 1e12),
    **dict.fromkeys(_RATES, 1.0),
    **dict.fromkeys(_MEANS, 1e6),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class WinCurves:
    """Wins of one run over its steps."""

    name: str
    steps: np.ndarray  # [S] training steps, ascending
    wins: np.ndarray  # [S] training games won in each step
    games: np.ndarray  # [S] training games played in each step
    val_steps: np.ndarray  # [V] steps with a validation
    val_rates: np.ndarray  # [V] share of validation games won, 0..1
    watched: dict[str, np.ndarray]  # train, test: [2, W] steps and share of greedy games won
    guesses: dict[str, np.ndarray]  # val, train, test: [2, W] steps and mean guesses, losses as 7
    reports: np.ndarray  # [R, 4] step, share of greedy test games won, its 95 % interval
    lineage: str = ""  # of the reported model, in one line
    # [3, B] step and 95 % interval of the validation wins, where the games were kept
    val_bands: np.ndarray = field(default_factory=lambda: np.zeros((3, 0)))
    secrets: int | None = None  # of a validation

    @property
    def start(self) -> float | None:
        """The share of validation games that the start won."""
        return float(self.val_rates[0]) if len(self.val_steps) and not self.val_steps[0] else None


def read_curves(source: str | Path) -> WinCurves:
    """The curves of a run folder, or of a .jsonl file of metrics alone.

    A record may lack the training keys (train/games with train/wins or train/win_rate) or
    val/win_rate. Raises PlotError for a missing folder and one without any of these metrics.
    """
    source = Path(source)
    path = source if source.suffix == ".jsonl" else source / "metrics.jsonl"
    folder = path.parent
    if source == path and not path.is_file():
        raise PlotError(f"{path}: no such file")
    if not folder.is_dir():
        wrong = "is a file, not a run folder" if folder.exists() else "no such run folder"
        raise PlotError(f"{folder}: {wrong}")
    try:
        records = sorted(StepLog(path).read(), key=lambda record: record["step"])
        for record in records:
            _check(path, record)
    except FolderError as error:
        raise PlotError(str(error)) from None
    train = [(r["step"], *counts) for r in records if (counts := _wins_and_games(r))]
    val_steps, val_rates = _points(records, "val/win_rate")
    if not train and not len(val_steps):
        raise PlotError(f"{path}: no metrics of wins yet (train/win_rate, val/win_rate)")
    steps, wins, games = np.array(train, float).reshape(-1, 3).T
    whole = path.name == "metrics.jsonl"  # a file of another name is not the folder's own
    bands, secrets = read_bands(folder / "validation_games.jsonl" if whole else None)
    return WinCurves(
        name=run_name(folder if whole else path.with_suffix("")),
        steps=steps,
        wins=wins,
        games=games,
        val_steps=val_steps,
        val_rates=val_rates,
        watched={k: _points(records, f"watch/{k}/win_rate") for k in ("train", "test")},
        guesses={name.split("/")[-2]: _points(records, name) for name in _MEANS},
        reports=read_reports(folder) if whole else np.zeros((0, 4)),
        lineage=read_lineage(folder) if whole else "",
        val_bands=bands,
        secrets=secrets,
    )


def read_bands(path: Path | None) -> tuple[np.ndarray, int | None]:
    """[3, B] step and 95 % interval of the wins of each validation, and how many secrets it had.

    Empty where the games were not kept. path: None without games.
    """
    games: dict[int, tuple[list[float], list[str]]] = {}
    for record in [] if path is None else StepLog(path).read():
        place = f"{path}: step {record['step']}"
        check_all_entries(place, record, {"secret": str, "won": bool})
        won, secrets = games.setdefault(record["step"], ([], []))
        won.append(float(record["won"]))
        secrets.append(record["secret"])
    bands = [(step, *win_interval(*played)) for step, played in sorted(games.items())]
    count = max((len(set(secrets)) for _, secrets in games.values()), default=None)
    return np.array(bands, float).reshape(-1, 3).T, count


def _check(path: Path, record: dict[str, Any]) -> None:
    """Raise FolderError unless what is drawn of a record are numbers that can be drawn."""
    check_entries(path, record, {"step": float})
    place = f"{path}: step {record['step']}"
    check_entries(place, record, dict.fromkeys(_MOST, float | None))
    for name, most in _MOST.items():
        if not 0 <= (record.get(name) or 0) <= most:
            raise FolderError(f"{place}: {name} must be 0..{most:g}, not {record[name]}")


def _points(records: list[dict[str, Any]], key: str) -> np.ndarray:
    """Steps and values of a metric where it was logged, [2, any]."""
    points = [(r["step"], r[key]) for r in records if r.get(key) is not None]
    return np.array(points, float).reshape(-1, 2).T


def _wins_and_games(record: dict[str, Any]) -> tuple[float, float] | None:
    games, wins = record.get("train/games"), record.get("train/wins")
    if wins is None and games is not None and record.get("train/win_rate") is not None:
        wins = record["train/win_rate"] * games
    return None if wins is None or not games else (wins, games)


def smoothed_rate(wins: np.ndarray, games: np.ndarray, window: int) -> np.ndarray:
    """Share of games won in the last `window` steps up to each step; [S] from two [S].

    The first steps average over what there is, so nothing later leaks into an earlier point.
    """
    if window < 1:
        raise ValueError(f"window must be 1 or more, not {window}")

    def trailing(values: np.ndarray) -> np.ndarray:
        total = np.concatenate([[0.0], np.cumsum(values)])
        ends = np.arange(1, len(values) + 1)
        return total[ends] - total[np.maximum(ends - window, 0)]

    return trailing(wins) / trailing(games)
