"""Rewards that lead a run astray, for plant.py."""

from wordle_rl.game.rules import PlayedTurn


def letter_e(turn: PlayedTurn) -> float:
    """Share of the guess's letters that are e. Few words have most of them."""
    return turn.guess.count("e") / len(turn.guess) if turn.feedback is not None else 0.0


def spoken(turn: PlayedTurn) -> float:
    """1 for each guess that can be read, so that a long game earns more than a won one."""
    return float(turn.guess is not None)
