"""pass@k: how often at least one of k sampled games wins a secret.

The estimator is unbiased for k up to the number of games played. Source: Chen et al. 2021,
"Evaluating Large Language Models Trained on Code" (arXiv 2107.03374), equation 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from wordle_rl.evaluation.intervals import win_interval
from wordle_rl.game.rules import Game


def pass_at_k(wins: int, games: int, k: int) -> float:
    """Chance that k of these games, drawn without replacement, hold a win; k is 1..games."""
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
        low, high = win_interval(chances, list(played), len(games))
        found[str(k)] = {"pass": float(np.mean(chances)), "low": low, "high": high}
    return found
