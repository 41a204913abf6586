"""What a study leaves in its folder: study.json, results.csv and games.csv.xz.

The three files are enough to judge the study, and to continue it on another machine. A line of
results.csv is a trial. A line of games.csv.xz is a validation game: of the first and of the last
validation of a trial, or of all for a measure over time. A guess that the rules refused ends with
!, and an answer without a readable guess is -.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from optuna.trial import FrozenTrial, TrialState, create_trial

from wordle_rl.runs.files import FolderError, StepLog, read_object, write_bytes, write_json
from wordle_rl.runs.listing import LATEST, find_run
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.plan import ARM, StudyPlan
from wordle_rl.sweeps.space import Params, Space, format_params, quote, read_value

RECORD, TABLE, GAMES = "study.json", "results.csv", "games.csv.xz"
TEST_WINS, TEST_GUESSES = "test_win_rate", "test_mean_guesses_with_losses"  # among the figures
LINEAGE = "lineage"
SEARCH, CONFIRMATION = "search", "confirmation"  # the rounds of a study
Trials = Mapping[str, Sequence[FrozenTrial]]  # by round
_TEXTS = ("run", "cause", "began", "ended", "lineage")  # figures that are no numbers
_FIGURES = ("run", "best_step", "games", "seconds", "games_per_second", "no_spread",
            "test_win_rate", "test_mean_guesses_with_losses", "cause", "began", "ended", "curve",
            "lineage")  # fmt: skip
_STATES = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
    TrialState.RUNNING: "running", TrialState.WAITING: "waiting",
}  # fmt: skip


def read_record(folder: Path) -> dict[str, Any] | None:
    """The content of study.json; None without the file. Raises FolderError."""
    path = folder / RECORD
    if not path.exists():
        return None
    found = read_object(path)
    if not isinstance(found.get("identity"), dict):
        raise FolderError(f"{path}: has no identity; remove it, and the study's command writes it")
    return found


def write_record(
    folder: Path, plan: StudyPlan, storage: str | None, command: Sequence[str]
) -> None:
    """Write study.json. The command that started a study stays.

    storage: the address without its password; None for sqlite in the folder.
    """
    settings, before = plan.settings, read_record(folder)
    record = {
        "name": settings.name,
        "question": settings.question,
        "storage": storage,
        "command": list(command),
        "identity": plan.identity(),
        "analysis": asdict(settings.analysis),
    }
    if before and (before["identity"], before.get("storage")) == (record["identity"], storage):
        record["command"] = before.get("command", record["command"])
    if json.dumps(before) != json.dumps(record):  # order counts
        write_json(folder / RECORD, record)


def settle_start(overrides: Sequence[str], folder: Path) -> list[str]:
    """The overrides with the run that init_from=latest means, which is the same for every trial.

    folder: of the study. One that has begun keeps the run that was the latest then.
    """
    latest = f"init_from={LATEST}"
    if latest not in overrides:
        return list(overrides)
    begun = (read_record(folder) or {"identity": {}})["identity"].get("overrides", [])
    start = next((one for one in begun if one.startswith("init_from=")), None)
    if start is None:
        run = find_run(LATEST, "init_from", ROOT, ROOT / "outputs", "finished")
        start = f"init_from={quote(str(run.path))}"
    return [start if one == latest else one for one in overrides]


def read_point(trial: FrozenTrial) -> Params:
    """The parameters of a trial, also of one that is still queued."""
    return trial.system_attrs.get("fixed_params", trial.params)


def list_results(trials: Trials) -> Iterator[tuple[str, FrozenTrial]]:
    """Round and trial; leaves out trials that were interrupted and ran again."""
    for part, found in trials.items():
        for trial in found:
            if trial.state != TrialState.FAIL or "cause" in trial.user_attrs:
                yield part, trial


def write_results(folder: Path, trials: Trials) -> None:
    """Write results.csv."""
    rows = [
        {
            "trial": trial.number, "round": part, "state": _STATES[trial.state],
            **read_point(trial), **_list_figures(trial),
        }
        for part, trial in list_results(trials)
    ]  # fmt: skip
    params = dict.fromkeys(
        name
        for _, trial in list_results(trials)
        for name in sorted(read_point(trial), key=lambda name: name != "seed")
    )
    columns = ["trial", "round", "state", *params, "val_win_rate", *_FIGURES]
    table = pd.DataFrame(rows, columns=pd.Index(columns), dtype=object)
    write_bytes(folder / TABLE, table.to_csv(index=False, lineterminator="\n").encode())


def _list_figures(trial: FrozenTrial) -> dict[str, Any]:
    times = {"began": trial.datetime_start, "ended": trial.datetime_complete}
    figures = {
        **{name: time.isoformat(timespec="seconds") for name, time in times.items() if time},
        **trial.user_attrs,
    }
    if figures.get("curve") is not None:
        figures["curve"] = json.dumps([[float(g), float(w)] for g, w in figures["curve"]])
    if figures.get("run") is not None:
        figures["run"] = str(figures["run"]).removeprefix(f"{ROOT}/")
    # Optuna gives a pruned trial the value of its last report.
    value = trial.value if trial.state == TrialState.COMPLETE else None
    return {"val_win_rate": value} | {
        name: value if value is None or name in ("curve", *_TEXTS) else float(value)
        for name, value in figures.items()
        if name in _FIGURES
    }


def read_trials(folder: Path, part: str, space: Space) -> dict[int, FrozenTrial]:
    """The finished trials of a round by their numbers, from results.csv, if there is one.

    Raises FolderError for a table of another study.
    """
    path = folder / TABLE
    if not path.is_file():
        return {}
    try:
        rows: Any = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
        return {
            int(row["trial"]): _read_trial(row, space)
            for row in rows
            if row["round"] == part and row["state"] in ("complete", "pruned")
        }
    except (KeyError, ValueError, TypeError) as error:
        raise FolderError(f"{path}: not the trials of this study: {error}") from None


def _read_trial(row: Mapping[str, str], space: Space) -> FrozenTrial:
    figures: dict[str, Any] = {
        n: row[n] if n in _TEXTS else json.loads(row[n]) for n in _FIGURES if row.get(n)
    }
    reports = [wins for games, wins in figures.get("curve", []) if games > 0]
    state = TrialState.COMPLETE if row["state"] == "complete" else TrialState.PRUNED
    return create_trial(
        state=state, value=float(row["val_win_rate"]) if row["val_win_rate"] else None,
        params={name: read_value(item, row[name]) for name, item in space.items()},
        distributions=dict(space), user_attrs=figures,
        intermediate_values=dict(enumerate(reports, 1)),
    )  # fmt: skip


def write_games(folder: Path, trials: Trials, *, every: bool) -> None:
    """Write games.csv.xz. Trials whose run folder is not here keep the games that it has.

    every: whether to take all validations, not the first and the last alone.
    """
    path = folder / GAMES
    known = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else None
    parts = []
    for part, trial in list_results(trials):
        log = ROOT / trial.user_attrs.get("run", "") / "validation_games.jsonl"
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and log.is_file():
            parts.append(_read_games(log, part, trial, every=every))
        elif known is not None:
            parts.append(known[(known["round"] == part) & (known["trial"] == str(trial.number))])
    if parts and (games := pd.concat(parts)).size:
        text = games.to_csv(index=False, lineterminator="\n")
        write_bytes(path, lzma.compress(text.encode(), preset=9))


def _read_games(log: Path, part: str, trial: FrozenTrial, *, every: bool) -> pd.DataFrame:
    arm = format_arm({name: value for name, value in trial.params.items() if name != "seed"})
    about = {"round": part, "trial": trial.number, "arm": arm, "seed": trial.params.get("seed", 0)}
    games = [
        {**about, "step": game["step"], "secret": game["secret"], "guesses": _spell(game)}
        for game in StepLog(log).records()
    ]
    last = max((game["step"] for game in games), default=0)
    return pd.DataFrame([game for game in games if every or game["step"] in (0, last)])


def _spell(game: Mapping[str, Any]) -> str:
    return " ".join(
        "-" if guess is None else guess if kind == "accepted" else f"{guess}!"
        for guess, kind in zip(game["guesses"], game["kinds"], strict=True)
    )


def format_arm(arm: Params) -> str:
    """The name of an arm alone, or all parameters of a study without arms."""
    return str(arm[ARM]) if [*arm] == [ARM] else format_params(arm)
