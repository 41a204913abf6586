"""What a study leaves in its folder: study.json, results.csv and games.csv.xz.

They are enough to judge the study, and to continue it on another machine. A line of results.csv is
a trial. A line of games.csv.xz is a game of the first or the last validation of a trial, or of any
for a measure over time. A refused guess ends with !, and an answer without a guess is -.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from wordle_rl.runs.files import StepLog, read_json, write_bytes, write_json
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.space import ARM, Space, name_arm, read_value

RECORD, TABLE, GAMES = "study.json", "results.csv", "games.csv.xz"
SEARCH, CONFIRMATION = "search", "confirmation"  # the rounds of a study
CONFIRMED: Space = {  # by a confirmation; more seeds may follow later
    ARM: CategoricalDistribution(("winner", "default")), "seed": IntDistribution(0, 2**53),
}  # fmt: skip
WINS = "val_win_rate"
NUMBERS = ("best_step", "games", "seconds", "no_spread", "test_win_rate",
           "test_mean_guesses_with_losses")  # fmt: skip
FIGURES = ("run", *NUMBERS, "cause", "curve", "lineage")
Trials = Mapping[str, Sequence[FrozenTrial]]  # by round
STATES = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip


def read_record(folder: Path) -> dict[str, Any]:
    """The content of study.json; empty without the file."""
    path = folder / RECORD
    return read_json(path) if path.exists() else {}


def write_record(plan: StudyPlan) -> None:
    """Write study.json. The command that started a study stays, without its database."""
    settings = plan.settings
    before = read_record(settings.place)
    typed = [word for word in sys.argv if not word.startswith("hydra.sweeper.storage=")]
    record = {
        "name": settings.name,
        "question": settings.question,
        "command": before.get("command", typed),
        "identity": plan.identity(),
        "analysis": asdict(settings.analysis),
    }
    write_json(settings.place / RECORD, record)


def list_ended(trials: Trials) -> list[tuple[str, FrozenTrial]]:
    """Round and trial; leaves out trials that were interrupted and ran again."""
    return [
        (part, trial)
        for part, found in trials.items()
        for trial in found
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or "cause" in trial.user_attrs
    ]


def write_results(folder: Path, trials: Trials) -> None:
    """Write results.csv."""
    rows = [
        {
            "trial": trial.number, "round": part, "state": STATES[trial.state],
            # Optuna gives a pruned trial the value of its last report.
            WINS: trial.value if trial.state == TrialState.COMPLETE else None,
            **trial.params, **trial.user_attrs,
        }
        for part, trial in list_ended(trials)
    ]  # fmt: skip
    params = {name: None for _, trial in list_ended(trials) for name in trial.params}
    names = sorted(params, key=lambda name: name != "seed")
    columns = pd.Index(["trial", "round", "state", *names, WINS, *FIGURES])
    table = pd.DataFrame(rows, columns=columns, dtype=object)
    table[[*NUMBERS]] = table[[*NUMBERS]].astype(float)
    write_bytes(folder / TABLE, table.to_csv(index=False, lineterminator="\n").encode())


def read_trials(folder: Path, part: str, space: Space) -> dict[int, FrozenTrial]:
    """The finished trials of a round by their numbers, from results.csv, if there is one."""
    path, found = folder / TABLE, {}
    if not path.is_file():
        return found
    table: Any = pd.read_csv(path, dtype=str, keep_default_na=False)
    ended = table[(table["round"] == part) & table.state.isin(["complete", "pruned"])]
    for row in ended.to_dict("records"):
        reports = [wins for games, wins in json.loads(row["curve"] or "[]") if games > 0]
        found[int(row["trial"])] = create_trial(
            state=TrialState.COMPLETE if row["state"] == "complete" else TrialState.PRUNED,
            value=float(row[WINS]) if row[WINS] else None,
            params={name: read_value(item, row[name]) for name, item in space.items()},
            distributions=dict(space),
            user_attrs={name: float(row[name]) if name in NUMBERS else row[name]
                        for name in FIGURES if row[name]},
            intermediate_values=dict(enumerate(reports, 1)),
        )  # fmt: skip
    return found


def write_games(plan: StudyPlan, trials: Trials) -> None:
    """Write games.csv.xz. Trials whose run folder is not here keep the games that it has."""
    path = plan.settings.place / GAMES
    known = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else None
    every = plan.settings.analysis.measure.endswith("_over_time")
    parts = []
    for part, trial in list_ended(trials):
        log = ROOT / trial.user_attrs.get("run", "") / "validation_games.jsonl"
        if trial.state != TrialState.FAIL and log.is_file():
            arm = name_arm(trial.params, plan.space if part == SEARCH else CONFIRMED)
            about = {"round": part, "trial": trial.number, "arm": arm,
                     "seed": trial.params.get("seed", 0)}  # fmt: skip
            games = [
                {**about, "step": game["step"], "secret": game["secret"], "guesses": _spell(game)}
                for game in StepLog(log).records()
            ]
            last = max((game["step"] for game in games), default=0)
            parts.append(
                pd.DataFrame([game for game in games if every or game["step"] in (0, last)])
            )
        elif known is not None:
            parts.append(known[(known["round"] == part) & (known["trial"] == str(trial.number))])
    if parts and (found := pd.concat(parts)).size:
        text = found.to_csv(index=False, lineterminator="\n")
        write_bytes(path, lzma.compress(text.encode(), preset=9))


def _spell(game: Mapping[str, Any]) -> str:
    return " ".join(
        "-" if guess is None else guess if kind == "accepted" else f"{guess}!"
        for guess, kind in zip(game["guesses"], game["kinds"], strict=True)
    )
