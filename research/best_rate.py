"""Does the noise scale tell the best rate? From the study batch_rate: python research/best_rate.py

For each number of games a step: the rate at which a parabola through the wins at three rates has
its top (in log10 of the rate), with a 95 % interval by drawing seeds anew, and what the noise scale
says it should be, if the largest step's is right. B games a step allow, of the best rate of any
step, B / (B + N) by SGD (McCandlish et al. 2018, arXiv 1812.06162). By Adam it is the square root
of that (its square-root rule: Malladi et al. 2022, arXiv 2205.10287). N is measured at 1e-5, where
the policy hardly moves.
"""

import json
import lzma
from csv import DictReader
from pathlib import Path

import numpy as np

STUDY = Path(__file__).resolve().parents[1] / "sweeps" / "batch_rate"
SIZES = (16, 64, 256, 1024)  # games a step
RATES = ("1e-5", "1e-4", "1e-3")


def read_wins() -> tuple[dict[str, np.ndarray], float]:
    """Arm -> wins in % after the last step, one number a seed; and the start's guesses a game."""
    with lzma.open(STUDY / "games.csv.xz", "rt") as file:
        games = list(DictReader(file))
    last = {game["trial"]: game["step"] for game in games}  # steps ascend
    results: dict[str, dict[str, list[bool]]] = {}
    for game in games:
        if game["step"] == last[game["trial"]]:
            seeds = results.setdefault(game["arm"], {})
            is_win = game["guesses"].split()[-1] == game["secret"]
            seeds.setdefault(game["seed"], []).append(is_win)
    wins = {arm: np.array([100 * np.mean(s[k]) for k in sorted(s)]) for arm, s in results.items()}
    guesses = [len(game["guesses"].split()) for game in games if game["arm"] == "start"]
    return wins, float(np.mean(guesses))


def read_scale() -> float:
    """The noise scale in games: the mean of what two arms at 1e-5 say, in their last quarter."""
    trials = json.loads((STUDY / "study.json").read_text())["trials"]
    scales = []
    for size in SIZES[2:]:  # smaller steps agree too little to tell
        runs = [one for one in trials if one["arm"] == f"{size} games, 1e-5"]
        agreement = np.mean([one["metrics"]["update/agreement"] for one in runs])
        scales.append(size / 2 * (1 / agreement - 1))
    return float(np.mean(scales))


def find_top(wins: np.ndarray) -> np.ndarray:
    """log10 of the rate at the top of a parabola. wins: the three rates in the last axis."""
    low, middle, high = np.moveaxis(wins, -1, 0)
    return -4 - (high - low) / (2 * (high - 2 * middle + low))


def main() -> None:
    (wins, guesses), scale, rng = read_wins(), read_scale(), np.random.default_rng(0)
    print(f"noise scale at 1e-5: {scale:.0f} games, some {scale * guesses:.0f} guesses")
    tops = {}
    for size in SIZES:
        seeds = np.stack([wins[f"{size} games, {rate}"] for rate in RATES], axis=-1)
        samples = seeds[rng.integers(len(seeds), size=(10_000, len(seeds)))].mean(axis=1)
        low, high = np.percentile(find_top(samples), (2.5, 97.5))
        tops[size] = 10 ** float(find_top(seeds.mean(axis=0))), 10**low, 10**high
    peak, whole = tops[SIZES[-1]][0], SIZES[-1] / (SIZES[-1] + scale)
    for size, (top, low, high) in tops.items():
        share = size / (size + scale) / whole
        print(
            f"{size} games: best {top:.1e} ({low:.1e} to {high:.1e}), "
            f"by Adam's rule {peak * share**0.5:.1e}, by SGD's {peak * share:.1e}"
        )


if __name__ == "__main__":
    main()
