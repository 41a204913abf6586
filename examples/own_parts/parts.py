"""Parts of one's own: a reward, which is a plain function, a scripted player and an algorithm."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wordle_rl.algorithms.base import Advantages, StepOutcomes
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import RandomConsistent
from wordle_rl.game.rules import PlayedTurn, State


def vowel(turn: PlayedTurn, bonus: float = 1.0) -> float:
    """bonus for a guess that starts with a, e, i, o or u, else 0."""
    return bonus if turn.guess is not None and turn.guess[0] in "aeiou" else 0.0


class Varied(RandomConsistent):
    """Guesses an answer that fits all clues, with five different letters where one has them."""

    def __init__(self, knowledge: Knowledge) -> None:
        super().__init__(knowledge)
        self.name = "varied"

    def choices(self, state: State) -> NDArray[np.intp]:
        candidates = super().choices(state)
        subset = [i for i in candidates if len(set(self.pool[i])) == 5]
        return np.array(subset) if subset else candidates


@dataclass(frozen=True, kw_only=True)
class ByState(DrGrpo):
    """As dr_grpo, with each guess compared with all guesses of its group on the same board.

    This is the step-level part of GiGPO (arXiv 2505.10978), without its part for whole games.
    """

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        advantages = [np.zeros(len(returns)) for returns in outcomes.returns]
        by_state = defaultdict(list)
        for i, states in enumerate(outcomes.states):
            for k, state in enumerate(states):
                by_state[outcomes.groups[i], state].append((i, k))
        for places in by_state.values():
            mean = np.mean([outcomes.returns[i][k] for i, k in places])
            for i, k in places:
                advantages[i][k] = outcomes.returns[i][k] - mean if len(places) > 1 else 0.0
        return Advantages(per_turn=advantages)
