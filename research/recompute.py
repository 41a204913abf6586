"""Recomputes comparisons from raw games without our code: python research/recompute.py sweeps/*/

Prints each comparison's difference, interval and corrected p, which are on its study's page, too,
and fails where they are not.
"""

import csv
import json
import lzma
import sys
from pathlib import Path

import numpy as np
from scipy.stats import t as student

TOLD = ("difference", "low", "high", "p")
SCORES = {
    "wins": lambda _, guesses, secret: 100 * (guesses[-1] == secret),
    "guesses": lambda _, guesses, secret: len(guesses) + (guesses[-1] != secret),
    "repeats_over_time": lambda _, a, __: 100 - 100 * (len({*a} - {"-"}) + a.count("-")) / len(a),
    "idle_groups": lambda trial, *_: 100 * trial["no_spread"],
    "test_wins": lambda trial, *_: 100 * (trial.get("test_win_rate") or 0),
}


def read(path, trials, measure, params):  # arm -> {(seed, secret): numbers}, and name -> arm
    with lzma.open(path / "games.csv.xz", "rt") as file:
        games = [(g["round"] + g["trial"], g) for g in csv.DictReader(file)]
    last, cells, arms = {name: g["step"] for name, g in games}, {}, {}  # steps ascend
    for name, g in games:
        if name in trials and (g["step"] != "0" if "time" in measure else g["step"] == last[name]):
            key = arms[g["arm"]] = tuple(map(trials[name].get, params))
            cell = cells.setdefault(key, {})
            number = SCORES[measure](trials[name], g["guesses"].split(), g["secret"])
            cell.setdefault((g["seed"], g["secret"]), []).append(number)
    return cells, arms


def compare(one, other):  # chance of a greater |t|, mean difference, its standard error, freedom
    gaps, squares = np.array([np.mean(one[key]) - np.mean(other[key]) for key in one]), []
    for names in ([seed for seed, _ in one], [secret for _, secret in one], [*map(str, one)]):
        group = np.unique(names, return_inverse=True)[1]  # clusters; equal secrets at each seed
        sums, n = np.bincount(group, gaps - gaps.mean()), group.max() + 1
        squares.append((sums**2).sum() / len(gaps) ** 2 * n / (n - 1))
    error = max(*squares[:2], squares[0] + squares[1] - squares[2]) ** 0.5
    freedom = len({seed for seed, _ in one}) - 1
    return 2 * student.sf(abs(gaps.mean()) / error, freedom), gaps.mean(), error, freedom


for path in map(Path, sys.argv[1:]):
    study, results, level, p = json.loads((path / "study.json").read_text()), [], 0.0, 0.0
    trials = {f"{t['round']}{t['trial']}": t for t in study["trials"] if t["state"] == "complete"}
    params = {"arm", *study["identity"]["space"]} - {"seed"}
    cells, names = read(path, trials, study["analysis"]["measure"], params)
    for effect in study["effects"]:
        pair = effect["name"].removesuffix(", fresh seeds").split(" against ")
        pair = study["analysis"]["comparisons"].get(effect["name"], pair)
        arms = [arm if isinstance(arm, dict) else {"arm": arm} for arm in pair]
        keys = [names.get(arm.get("arm"), tuple(map(arm.get, params))) for arm in arms]
        results.append((*compare(*(cells[key] for key in keys)), effect))
    results.sort(key=lambda one: one[0])  # Holm's method
    for rest, (chance, mean, error, freedom, effect) in zip(
        range(len(results), 0, -1), results, strict=True
    ):
        level, p = 0.05 / rest if p < 0.05 else level, max(p, min(1.0, rest * chance))
        half = error * student.isf(level / 2, freedom)
        ours = (mean, mean - half, mean + half, p)
        text = "{:+.4f} ({:+.4f} to {:+.4f}), p = {:.4f}".format(*ours)
        print(f"{study['name']}, {effect['name']}: {text}, as on its page")
        assert np.allclose(ours, [effect[key] for key in TOLD], rtol=0, atol=1e-6), effect
