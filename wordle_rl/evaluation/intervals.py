"""How sure a number of a report is: 95 % intervals, and a test of two players against each other.

Secrets are taken as independent, games are not: several games on one secret tend to end alike.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054  # the normal quantile of 97.5 %


def wilson(wins: float, games: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share, without continuity correction; (0, 1) at no games.

    Both may be fractions when `games` is an effective sample size, which scipy's does not take.
    Source: Newcombe, Statistics in Medicine 17 (1998), method 3.
    """
    if games == 0:
        return 0.0, 1.0
    z2, share = Z95 * Z95, wins / games
    middle = (share + z2 / (2 * games)) / (1 + z2 / games)
    half = Z95 * math.sqrt(share * (1 - share) / games + z2 / (4 * games**2)) / (1 + z2 / games)
    # Rounding must not move the ends beyond 0, 1 or the share itself.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def standard_error(values: Sequence[float], secrets: Sequence[str]) -> float | None:
    """Standard error of the mean of one value per game; None with fewer than two secrets.

    secrets: one per game. Games on one secret are one cluster, whose deviations are summed first.
    Source: the linearised variance of a ratio, Cochran, Sampling Techniques (1977), section 11.9.
    """
    clusters: defaultdict[str, float] = defaultdict(float)
    mean = float(np.mean(values))
    for value, secret in zip(values, secrets, strict=True):
        clusters[secret] += value - mean
    count = len(clusters)
    if count < 2:
        return None
    squares = math.fsum(total**2 for total in clusters.values())
    return math.sqrt(count / (count - 1) * squares) / len(values)


def win_interval(
    shares: Sequence[float], secrets: Sequence[str], games: int | None = None
) -> tuple[float, float]:
    """95 % interval of the mean of win rates, in 0..1.

    shares: 1 or 0 for a game, or an estimate from several games. secrets: one per share. games: all
    of them, if they are more than the shares. This is Wilson's interval for the number of
    independent games that would be equally precise, at least one a secret.
    Source: Dean and Pagano, Journal of Survey Statistics and Methodology 3 (2015).
    """
    share, size = float(np.mean(shares)), float(len(set(secrets)))
    if error := standard_error(shares, secrets):
        size = min(max(share * (1 - share) / error**2, size), games or len(shares))
    return wilson(share * size, size)


def change_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """99 % interval of how much a mean has changed, by Student's t. Two or more values each."""
    from scipy.special import stdtrit  # a quarter of a second, which most commands do not need

    t = float(stdtrit(len(before) + len(after) - 2, 0.995))
    half = t * math.sqrt(sum(np.var(part, ddof=1) / len(part) for part in (before, after)))
    change = float(np.mean(after) - np.mean(before))
    return change - half, change + half


def sign_test(one: int, other: int) -> float:
    """Exact two-sided p-value of so many signs of each kind when both are equally likely.

    Of secrets that only one of two players won, this is McNemar's test of equal win rates.
    """
    split = one + other
    tail = sum(math.comb(split, k) for k in range(min(one, other) + 1)) / 2**split
    return min(1.0, 2 * tail)
