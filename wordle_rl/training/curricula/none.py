"""No curriculum: every step has the rewards of reward= and its planned secrets."""

from wordle_rl.training.curricula.base import Curriculum


class NoCurriculum(Curriculum):
    """Plans every step the same."""
