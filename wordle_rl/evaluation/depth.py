"""Results by the number of guesses that a game had behind it when the player took it over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from wordle_rl.evaluation.intervals import win_interval
from wordle_rl.game.rules import Game


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
    return {str(depth): _results(depths[depth]) for depth in sorted(depths)}


def depth_metrics(prefix: str, games: Sequence[Game]) -> dict[str, float]:
    """The results by depth as metrics, such as val/given_2/win_rate."""
    return {
        f"{prefix}/given_{depth}/{name}": float(results[name])
        for depth, results in results_by_depth(games).items()
        for name in ("games", "win_rate", "mean_guesses_with_losses")
    }


def _results(games: Sequence[Game]) -> dict[str, Any]:
    won = [float(game.won) for game in games]
    low, high = win_interval(won, [game.secret for game in games])
    guesses = [game.state.turn if game.won else game.rules.max_turns + 1 for game in games]
    return {
        "games": len(games),
        "wins": int(sum(won)),
        "win_rate": float(np.mean(won)),
        "win_rate_low": low,
        "win_rate_high": high,
        "mean_guesses_with_losses": float(np.mean(guesses)),
    }
