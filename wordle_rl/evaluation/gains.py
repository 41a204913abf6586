"""Whether training wins secrets that its start hardly ever won, or more of its usual ones.

A secret with few wins at the start would win more in new games even without training, because some
of its losses were bad luck. So half of the start's games sort the secrets, and the other half are
compared with the trained games.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wordle_rl.evaluation.losses import win_shares
from wordle_rl.game.rules import Game

_UPPER = (0.0, 0.25, 0.5, 0.75)  # shares of wins that end a group, upper ends included


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Secrets of which the start won a similar share in the first half of its games."""

    wins: str  # how many of how many games it won there, such as 3-4 of 8
    secrets: int
    before: float  # share that the start won in the second half of its games
    after: float  # share that the trained runs won, mean over runs


def group_gains(before: Sequence[Game], after: Sequence[Sequence[Game]]) -> list[Group]:
    """Groups of secrets, hardest first; empty groups are left out.

    Every secret needs the same number of games, and two or more, else the result is empty.
    """
    of_secret: defaultdict[str, list[Game]] = defaultdict(list)
    for game in before:
        of_secret[game.secret].append(game)
    counts = {len(some) for some in of_secret.values()}
    if len(counts) != 1 or (half := counts.pop() // 2) < 1:
        return []
    first = {secret: sum(g.won for g in some[:half]) for secret, some in of_secret.items()}
    second = {s: float(np.mean([g.won for g in some[half:]])) for s, some in of_secret.items()}
    trained = [win_shares(games) for games in after]
    groups = []
    for low, high in _bounds(half):
        some = [secret for secret, wins in first.items() if low <= wins <= high]
        if some:
            groups.append(
                Group(
                    wins=f"{low} of {half}" if low == high else f"{low}-{high} of {half}",
                    secrets=len(some),
                    before=float(np.mean([second[secret] for secret in some])),
                    after=float(np.mean([[of[secret] for secret in some] for of in trained])),
                )
            )
    return groups


def _bounds(games: int) -> list[tuple[int, int]]:
    """Lowest and highest number of wins of each group: 0, up to a quarter, ..., all."""
    ends = sorted({int(share * games) for share in _UPPER} | {games - 1, games})
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))
