"""Rows of results/: each measured number once, with its interval and what made it.

results/README.md explains the columns. The games are kept beside the rows, so that anyone can
compute wins and gains again.
"""

import csv
import json
import lzma
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.summary import game_record
from wordle_rl.game.rules import Game
from wordle_rl.runs.folder import git_revision
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT

RESULTS = ROOT / "results"
FIELDS = (
    *("id", "measure", "value", "low", "high", "against", "model", "secrets", "games"),
    *("date", "commit", "machine", "command", "note", "raw"),
)
Row = dict[str, str]
_SHARES = {
    "fits": "consistency",
    "information": "bits_ratio",
    "readable": "format_compliance",
    "non_words": "without_word",
}
_GAME_KEYS = ("secret", "won", "guesses", "feedback", "kinds")  # of a game's record


def read_rows(folder: Path) -> list[Row]:
    """The rows of all CSV files of a folder."""
    rows: list[Row] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def append_rows(path: Path, rows: Sequence[Row]) -> None:
    """Add rows to a CSV file, which begins with the names of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerows(rows)


def check_id(name: str) -> None:
    """Raises ConfigError unless a result can be recorded under this name."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ConfigError(f"record must be of small letters, digits and _, not {name}")
    if any(row["id"] == name for row in read_rows(RESULTS)):
        raise ConfigError(f"record={name} is a result already; take another name")


def record_result(
    name: str,
    summary: Mapping[str, Any],
    games: Sequence[Game],
    *,
    command: str,
    computing: Mapping[str, Any],
) -> Path:
    """Add the rows of one player to results/recorded.csv, and its games. Returns that file.

    summary: of these games, by summarise. computing: how a model computed, see Computing.record.
    """
    raw = RESULTS / "games" / f"{name}.jsonl.xz"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(raw, "wt", encoding="utf-8") as file:
        for record in map(game_record, games):
            file.write(json.dumps({key: record[key] for key in _GAME_KEYS}) + "\n")
    machine = computing.get("gpu") or _processor()
    git = git_revision(ROOT) or {"revision": "", "dirty": False}
    columns = {
        "id": name,
        "model": summary["player"],
        "secrets": f"{summary['secrets']} {summary['split']}",
        "games": str(summary["games"]),
        "date": date.today().isoformat(),
        "commit": git["revision"][:8],
        "machine": ", ".join(filter(None, [machine, computing.get("precision")])),
        "command": command,
        "note": "changed since that commit" if git["dirty"] else "",
        "raw": f"games/{raw.name}",
    }
    path = RESULTS / "recorded.csv"
    append_rows(path, [{**columns, **row} for row in _measure(summary)])
    return path


def _measure(summary: Mapping[str, Any]) -> list[Row]:
    """Measure, value and interval of each number that a summary has."""
    unread_share = 1.0 - summary["format_compliance"]
    summary = {**summary, "without_word": unread_share + summary["non_words"]}
    rows = []
    for measure, key, factor, digits in (
        ("wins", "win_rate", 100, 1),
        ("guesses", "mean_guesses_with_losses", 1, 2),
        *((measure, key, 100, 1) for measure, key in _SHARES.items()),
    ):
        ends = {"value": key, "low": f"{key}_low", "high": f"{key}_high"}
        values = {end: summary.get(name) for end, name in ends.items()}
        cells = {e: f"{factor * x:.{digits}f}" for e, x in values.items() if x is not None}
        if "value" in cells:
            rows.append({"measure": measure, **cells})
    return rows


def _processor() -> str:
    """The name of the processor, as far as the system tells it."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.is_file() else ""
    match = re.search(r"^model name\s*: (.+)", text, re.M)
    return match[1] if match else platform.processor() or platform.machine()
