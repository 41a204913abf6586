"""pass@k: how often at least one of k sampled games wins a secret.

The estimator is unbiased for k up to the number of games played. Source: Chen et al. 2021,
"Evaluating Large Language Models Trained on Code" (arXiv 2107.03374), equation 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wordle_rl.evaluation.intervals import Z95, standard_error, wilson
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
    return pooled_passes([games])


def pooled_passes(
    runs: Sequence[Sequence[Game]], *, within: int | None = None
) -> dict[str, dict[str, float]]:
    """The same for several runs on the same secrets: the mean of their estimates.

    All k games are one run's. The interval is over secrets, so it does not say how much another
    seed of training would differ. within: only wins with so many guesses or fewer count.
    """
    wins, each = _count_wins(runs, within)
    if each < 2:
        return {}
    return {str(k): _estimate(_chances(wins, each, k), each * len(runs)) for k in _ks(each)}


def pass_differences(
    before: Sequence[Game], after: Sequence[Sequence[Game]], *, within: int | None = None
) -> dict[str, dict[str, float]]:
    """k -> pass@k of the runs `after` minus pass@k `before`, with a 95 % interval.

    Each secret is a pair, so the interval is narrower than the two intervals suggest. Empty unless
    every secret has the same number of games in all of them, and two or more.
    """
    (first, *others), each = _count_wins([before, *after], within)
    if each < 2:
        return {}
    found = {}
    for k in _ks(each):
        old, new = _chances([first], each, k), _chances(others, each, k)
        gains = {secret: new[secret] - old[secret] for secret in old}
        mean = float(np.mean(list(gains.values())))
        half = Z95 * (standard_error(list(gains.values()), list(gains)) or 0.0)
        found[str(k)] = {"difference": mean, "low": mean - half, "high": mean + half}
    return found


def _count_wins(
    runs: Sequence[Sequence[Game]], within: int | None
) -> tuple[list[dict[str, int]], int]:
    """Wins of each secret in each run, and the games of each; 0 unless all have equally many.

    Raises ValueError if the runs have different secrets.
    """
    found, counts = [], set()
    for games in runs:
        wins: defaultdict[str, int] = defaultdict(int)
        for game in games:
            wins[game.secret] += game.won and (within is None or game.state.turn <= within)
        found.append(dict(wins))
        counts |= set(Counter(game.secret for game in games).values())
    if any(wins.keys() != found[0].keys() for wins in found):
        raise ValueError("runs must be on the same secrets")
    return found, counts.pop() if len(counts) == 1 else 0


def _ks(each: int) -> list[int]:
    """The powers of 2 below the number of games, and this number."""
    return [*(2**i for i in range(each.bit_length()) if 2**i < each), each]


def _chances(runs: Sequence[Mapping[str, int]], each: int, k: int) -> dict[str, float]:
    """Mean over runs of each secret's pass@k."""
    return {
        secret: float(np.mean([pass_at_k(wins[secret], each, k) for wins in runs]))
        for secret in runs[0]
    }


def _estimate(chances: Mapping[str, float], most: int) -> dict[str, Any]:
    """most: games of a secret, which bound the effective number of games."""
    mean = float(np.mean(list(chances.values())))
    error = standard_error(list(chances.values()), list(chances))
    effective = float(len(chances))
    if error:
        effective = min(max(mean * (1 - mean) / error**2, effective), effective * most)
    low, high = wilson(mean * effective, effective)
    return {"pass": mean, "low": low, "high": high}
