"""Wins and guesses of games, together and by the guesses that a game began with."""

from __future__ import annotations

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
    won = [guesses for guesses in needed if guesses <= max_turns]
    mean = float(np.mean(needed))
    error = standard_error(needed, secrets)
    half = None if error is None else Z95 * error
    low, high = win_interval([float(guesses <= max_turns) for guesses in needed], secrets)
    counts = Counter(won)
    return {
        "wins": len(won),
        "win_rate": len(won) / len(needed),
        "win_rate_low": low,
        "win_rate_high": high,
        "mean_guesses": sum(won) / len(won) if won else None,
        "mean_guesses_with_losses": mean,
        "mean_guesses_with_losses_low": None if half is None else mean - half,
        "mean_guesses_with_losses_high": None if half is None else mean + half,
        "histogram": {
            **{str(turn): counts[turn] for turn in range(1, max_turns + 1)},
            "lost": len(needed) - len(won),
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
    found = {}
    for depth, some in sorted(depths.items()):
        secrets, most = [game.secret for game in some], some[0].rules.max_turns
        counted = count_results(needed_guesses(some), secrets, most)
        found[str(depth)] = {"games": len(some), **{name: counted[name] for name in _BY_DEPTH}}
    return found
