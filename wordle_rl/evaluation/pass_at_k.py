"""pass@k: how often at least one of k sampled games wins a secret.

The estimator is unbiased for k up to the number of games played. Source: Chen et al. 2021,
"Evaluating Large Language Models Trained on Code" (arXiv 2107.03374), equation 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from wordle_rl.evaluation.intervals import standard_error, wilson
from wordle_rl.game.rules import Game


def pass_at_k(wins: int, games: int, k: int) -> float:
    """Chance that k of these games, drawn without replacement, hold a win.

    Raises ValueError unless 1 <= k <= games and 0 <= wins <= games.
    """
    if not 1 <= k <= games or not 0 <= wins <= games:
        raise ValueError(f"k must be 1..{games} and wins 0..{games}, not {k} and {wins}")
    return 1.0 - math.comb(games - wins, k) / math.comb(games, k)


def passes(games: Sequence[Game]) -> dict[str, dict[str, float]]:
    """k -> its estimate over all secrets and a 95 % interval; k is 1, 2, 4, ... and all games.

    Empty unless every secret has the same number of games, and two or more.
    """
    played = Counter(game.secret for game in games)
    wins = Counter(game.secret for game in games if game.won)
    if len(set(played.values())) != 1 or (each := played[games[0].secret]) < 2:
        return {}
    found = {}
    for k in [*(2**i for i in range(each.bit_length()) if 2**i < each), each]:
        chances = [pass_at_k(wins[secret], each, k) for secret in played]
        low, high = pass_interval(chances, each)
        found[str(k)] = {"pass": float(np.mean(chances)), "low": low, "high": high}
    return found


def pass_interval(chances: Sequence[float], most: int) -> tuple[float, float]:
    """95 % interval of a mean pass@k. chances: one estimate per secret, each from `most` games.

    Wilson's for an effective number of secrets, as wordle_rl.evaluation.intervals.win_interval.
    """
    mean, count = float(np.mean(chances)), len(chances)
    error = standard_error(chances, [str(secret) for secret in range(count)])
    effective = float(count)
    if error:
        effective = min(max(mean * (1 - mean) / error**2, effective), effective * most)
    return wilson(mean * effective, effective)
