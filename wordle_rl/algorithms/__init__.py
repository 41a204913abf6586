"""Training algorithms: how rewards become advantages, weights and a loss. One file each."""

from wordle_rl.algorithms.base import Algorithm, LossInputs

__all__ = ["Algorithm", "LossInputs"]
