"""Writes reference runs for `wordle-rl report --reference`: python research/make_references.py

    <name> <command> <run folder> ...               runs of one command that differ in their seed
    <name> <command> --arm <study.json> <arm>       an arm of a shipped study, whose validations
                                                    alone are kept

A file in wordle_rl/reports/references/ has a line about the runs, and one for each seed.
"""

import argparse
import json
import lzma
from pathlib import Path
from typing import Any

from wordle_rl.evaluation.reference import METRICS
from wordle_rl.reports.reference import FOLDER
from wordle_rl.runs.config import flatten, read_config
from wordle_rl.runs.folder import RunFolder

DIGITS = 5
ALSO = ("train/non_words", "grad_norm", "val/mean_guesses_with_losses", "turns/zero_spread")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run that a reference keeps."""
    names = ("step", *METRICS, *ALSO)
    rows = []
    for row in RunFolder(folder).log("metrics").read():
        values = {name: row[name] for name in names if row.get(name) is not None}
        rows.append({k: v if k == "step" else float(f"{v:.{DIGITS}g}") for k, v in values.items()})
    return rows


def write(name: str, about: dict[str, str], seeds: list[dict[str, Any]]) -> None:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.jsonl.xz"
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as file:
        for line in (about, *seeds):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    print(f"{path}: {len(seeds)} seeds, {path.stat().st_size:,} bytes")


def of_runs(name: str, command: str, folders: list[Path]) -> None:
    """Write what runs of one command measured. Settings that differ but for the seed are named."""
    settings = [flatten(read_config(folder)) for folder in folders]
    names = ("seed", "output_dir", "name")
    for key in sorted(set.union(*map(set, settings)) - {*names}):
        if len({one.get(key) for one in settings}) > 1:
            print(f"note: {key} is {[one.get(key) for one in settings]}")
    seeds = [
        {"seed": int(one["seed"]), "rows": rows_of(folder)}
        for one, folder in zip(settings, folders, strict=True)
    ]
    write(name, {"command": command}, seeds)


def of_study(name: str, command: str, file: Path, arm: str) -> None:
    """Write the validations of an arm's trials, at the steps that they have by their games."""
    study = json.loads(file.read_text(encoding="utf-8"))
    games_a_step = study["identity"]["budget"]["games_per_step"]
    seeds = []
    for trial in study["trials"]:
        if trial.get("arm") == arm and trial["state"] == "complete":
            rows = [
                {"step": round(games / games_a_step), "val/win_rate": round(wins, DIGITS)}
                for games, wins in trial["curve"]
            ]
            seeds.append({"seed": trial["seed"], "rows": rows})
    write(name, {"command": command}, seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="what --reference= takes")
    parser.add_argument("command", help="of the runs, but for their seed")
    parser.add_argument("runs", type=Path, nargs="*", help="run folders")
    parser.add_argument("--arm", nargs=2, metavar=("STUDY", "ARM"))
    args = parser.parse_args()
    if args.arm:
        of_study(args.name, args.command, Path(args.arm[0]), args.arm[1])
    else:
        of_runs(args.name, args.command, args.runs)


if __name__ == "__main__":
    main()
