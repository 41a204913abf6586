"""pass@k: how often at least one of k sampled games wins a secret.

The estimator is unbiased for k up to the number of games played. Source: Chen et al. 2021,
"Evaluating Large Language Models Trained on Code" (arXiv 2107.03374), equation 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

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

    Empty unless every secret has the same number of games, and two or more. The interval is
    Wilson's for an effective number of secrets, as wordle_rl.evaluation.intervals.win_interval.
    """
    wins: defaultdict[str, int] = defaultdict(int)
    for game in games:
        wins[game.secret] += game.won
    counts = set(Counter(game.secret for game in games).values())
    if len(counts) != 1 or (each := counts.pop()) < 2:
        return {}
    powers = [2**i for i in range(each.bit_length()) if 2**i < each]
    return {str(k): _estimate(list(wins.values()), each, k) for k in [*powers, each]}


def _estimate(wins: Sequence[int], each: int, k: int) -> dict[str, Any]:
    chances = [pass_at_k(count, each, k) for count in wins]
    mean = float(np.mean(chances))
    error = standard_error(chances, [str(i) for i in range(len(chances))])
    effective = float(len(chances))
    if error:
        effective = min(max(mean * (1 - mean) / error**2, effective), effective * each)
    low, high = wilson(mean * effective, effective)
    return {"pass": mean, "low": low, "high": high}
