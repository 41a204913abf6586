"""What a study leaves in its folder: study.json and games.csv.xz.

They are enough to judge the study, and to continue it on another machine. study.json has its
settings and its trials. A line of games.csv.xz is a game of the first or the last validation of a
trial, or of any for a measure over time. A refused guess ends with !, and an answer without a guess
is -.
"""

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

from wordle_rl.runs.files import StepLog, json_bytes, read_json, write_bytes, write_json
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.space import ARM, Space, name_arm

RECORD, GAMES = "study.json", "games.csv.xz"
SEARCH, CONFIRMATION = "search", "confirmation"  # the rounds of a study
CONFIRMED: Space = {  # by a confirmation; more seeds may follow later
    ARM: CategoricalDistribution(("winner", "default")),
    "seed": IntDistribution(0, 2**53),
}
WINS = "val_win_rate"
NUMBERS = (
    "best_step",
    "games",
    "seconds",
    "no_spread",
    "test_win_rate",
    "test_mean_guesses_with_losses",
)
FIGURES = ("run", *NUMBERS, "cause", "curve", "lineage", "metrics")
Trials = Mapping[str, Sequence[FrozenTrial]]  # by round
STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


def read_record(folder: Path) -> dict[str, Any]:
    """The content of study.json; empty without the file."""
    path = folder / RECORD
    return read_json(path) if path.exists() else {}


def list_ended(trials: Trials) -> list[tuple[str, FrozenTrial]]:
    """Round and trial; leaves out trials that were interrupted and ran again."""
    return [
        (part, trial)
        for part, found in trials.items()
        for trial in found
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or "cause" in trial.user_attrs
    ]


def write_record(plan: StudyPlan, trials: Trials | None = None) -> None:
    """Write study.json. The command that started a study stays, without its database.

    trials: None leaves the trials in the file as they are.
    """
    settings = plan.settings
    before = read_record(settings.place)
    typed = [word for word in sys.argv if not word.startswith("hydra.sweeper.storage=")]
    record = {
        "name": settings.name,
        "question": settings.question,
        "command": before.get("command", typed),
        "identity": plan.identity(),
        "analysis": asdict(settings.analysis),
        "effects": before.get("effects", []),  # written with the page
        "trials": before.get("trials", []),
    }
    if trials is not None:
        record["trials"] = [_describe_trial(part, trial) for part, trial in list_ended(trials)]
    if json.loads(json_bytes(record)) != before:  # else another order would change a shipped file
        write_json(settings.place / RECORD, record)


def _describe_trial(part: str, trial: FrozenTrial) -> dict[str, Any]:
    # Optuna gives a pruned trial the value of its last report.
    wins = trial.value if trial.state == TrialState.COMPLETE else None
    about = {"trial": trial.number, "round": part, "state": STATES[trial.state], WINS: wins}
    return {**about, **trial.params, **trial.user_attrs}


def read_trials(folder: Path, part: str, space: Space) -> dict[int, FrozenTrial]:
    """The finished trials of a round by their numbers, from study.json."""
    found = {}
    for row in read_record(folder).get("trials", []):
        if row["round"] == part and row["state"] in ("complete", "pruned"):
            reports = [wins for games, wins in row.get("curve", []) if games > 0]
            found[row["trial"]] = create_trial(
                state=TrialState.COMPLETE if row["state"] == "complete" else TrialState.PRUNED,
                value=row[WINS],
                params={name: row[name] for name in space},
                distributions=dict(space),
                user_attrs={name: row[name] for name in FIGURES if name in row},
                intermediate_values=dict(enumerate(reports, 1)),
            )
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
            about = {
                "round": part,
                "trial": trial.number,
                "arm": arm,
                "seed": trial.params.get("seed", 0),
            }
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
    """The guesses of a game, - for one that could not be read and ! behind a refused one."""
    told = []
    for guess, kind in zip(game["guesses"], game["kinds"], strict=True):
        if guess is None:
            told.append("-")
        else:
            told.append(guess if kind == "accepted" else f"{guess}!")
    return " ".join(told)
