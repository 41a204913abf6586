"""The difference between two players on the secrets that both played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordle_rl.evaluation.intervals import Z95, sign_test, standard_error
from wordle_rl.reports.boards import Board
from wordle_rl.reports.results import Estimate, Result


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What the second player did better than the first, secret by secret."""

    secrets: int
    wins: Estimate  # share of games
    guesses: Estimate  # below 0 for fewer
    only_first: int  # secrets of which the first won more games
    only_second: int
    p_value: float  # of equal win rates, an exact sign test over secrets


def difference(first: Result, second: Result) -> Difference | None:
    """Compare two players on the secrets that both played. None without any."""
    one, other = first.by_secret, second.by_secret
    shared = [secret for secret in one if secret in other]
    if not shared:
        return None
    gains = [other[s][0] - one[s][0] for s in shared]
    saved = [other[s][1] - one[s][1] for s in shared]
    only_first, only_second = sum(gain < 0 for gain in gains), sum(gain > 0 for gain in gains)
    return Difference(
        secrets=len(shared), wins=_mean(gains, shared), guesses=_mean(saved, shared),
        only_first=only_first, only_second=only_second, p_value=sign_test(only_first, only_second),
    )  # fmt: skip


def pair_boards(first: Result, second: Result) -> list[tuple[Board, Board]]:
    """The first game of both players on each shared secret, in the order of the first player."""
    games: dict[str, Board] = {}
    for board in second.boards:
        games.setdefault(board.secret, board)
    pairs: dict[str, tuple[Board, Board]] = {}
    for board in first.boards:
        if board.secret in games and board.secret not in pairs:
            pairs[board.secret] = (board, games[board.secret])
    return list(pairs.values())


def _mean(values: Sequence[float], secrets: Sequence[str]) -> Estimate:
    mean, error = sum(values) / len(values), standard_error(values, secrets)
    if error is None:
        return Estimate(value=mean)
    return Estimate(value=mean, low=mean - Z95 * error, high=mean + Z95 * error)
