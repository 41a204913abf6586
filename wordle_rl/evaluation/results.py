"""Wins and guesses of games, together, by the guesses that a game began with, and by secret.

pass@k is how often at least one of k sampled games wins a secret. The estimator is unbiased for k
up to the number of games played. Source: Chen et al. 2021, "Evaluating Large Language Models
Trained on Code" (arXiv 2107.03374), equation 1.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from wordle_rl.evaluation.intervals import Z95, standard_error, win_interval
from wordle_rl.game.rules import Game

_BY_DEPTH = ("wins", "win_rate", "win_rate_low", "win_rate_high", "mean_guesses_with_losses")


def needed_guesses(games: Sequence[Game]) -> list[int]:
    """Guesses of each game, one more than the turns for a lost one. A retry uses no turn."""
    return [game.state.turn if game.won else game.rules.max_turns + 1 for game in games]


def count_results(needed: Sequence[int], secrets: Sequence[str], max_turns: int) -> dict[str, Any]:
    """Wins and guesses of some games, as entries of a summary.

    needed: guesses of each game, max_turns + 1 for a lost one. secrets: one per game.
    """
    win_lengths = [guesses for guesses in needed if guesses <= max_turns]
    mean = float(np.mean(needed))
    error = standard_error(needed, secrets)
    half = None if error is None else Z95 * error
    low, high = win_interval([float(guesses <= max_turns) for guesses in needed], secrets)
    counts = Counter(win_lengths)
    return {
        "wins": len(win_lengths),
        "win_rate": len(win_lengths) / len(needed),
        "win_rate_low": low,
        "win_rate_high": high,
        "mean_guesses": sum(win_lengths) / len(win_lengths) if win_lengths else None,
        "mean_guesses_with_losses": mean,
        "mean_guesses_with_losses_low": None if half is None else mean - half,
        "mean_guesses_with_losses_high": None if half is None else mean + half,
        "histogram": {
            **{str(turn): counts[turn] for turn in range(1, max_turns + 1)},
            "lost": len(needed) - len(win_lengths),
        },
    }


def given_guesses(game: Game) -> int:
    """How many turns of a game were used before the player's first answer."""
    return game.turns[0].state.turn if game.turns else game.state.turn


def results_by_depth(games: Sequence[Game]) -> dict[str, dict[str, Any]]:
    """Number of given guesses -> games, wins, their rate with its 95 % interval, mean guesses.

    Given guesses count as guesses, and a lost game as max_turns + 1.
    """
    depths: defaultdict[int, list[Game]] = defaultdict(list)
    for game in games:
        depths[given_guesses(game)].append(game)
    results = {}
    for depth, group in sorted(depths.items()):
        secrets, max_turns = [game.secret for game in group], group[0].rules.max_turns
        counts = count_results(needed_guesses(group), secrets, max_turns)
        results[str(depth)] = {"games": len(group), **{name: counts[name] for name in _BY_DEPTH}}
    return results


def pass_at_k(wins: int, games: int, k: int) -> float:
    """Chance that k of these games, drawn without replacement, hold a win; k is 1..games."""
    return 1.0 - math.comb(games - wins, k) / math.comb(games, k)


def passes(games: Sequence[Game]) -> dict[str, dict[str, float]]:
    """k -> its estimate over all secrets and a 95 % interval; k is 1, 2, 4, ... and all games.

    Empty unless every secret has the same number of games, and two or more.
    """
    counts = Counter(game.secret for game in games)
    wins = Counter(game.secret for game in games if game.won)
    if len(set(counts.values())) != 1 or (number := counts[games[0].secret]) < 2:
        return {}
    estimates = {}
    for k in [*(2**i for i in range(number.bit_length()) if 2**i < number), number]:
        chances = [pass_at_k(wins[secret], number, k) for secret in counts]
        low, high = win_interval(chances, list(counts), len(games))
        estimates[str(k)] = {"pass": float(np.mean(chances)), "low": low, "high": high}
    return estimates
