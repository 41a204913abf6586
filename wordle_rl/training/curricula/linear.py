"""Reward weights that move evenly from one set to the run's own."""

from dataclasses import dataclass

from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.training.curricula import StepPlan
from wordle_rl.training.curricula.phases import Epochs, Phases


@dataclass(kw_only=True)
class Linear(Phases):
    """(1 - share) x weights of `first` + share x weights of reward=, share 0..1 over the epochs.

    A component missing from one set has weight 0 there. Components of the same name must have the
    same settings in both sets, and both sets or neither must be lawful.
    """

    epochs: Epochs = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        first, last = self.first, self.rewards
        names = first.components.keys() & last.components.keys()
        diffs = [name for name in sorted(names) if first.components[name] != last.components[name]]
        if diffs or first.lawful != last.lawful:
            raise ValueError(
                "curriculum=linear moves weights only: lawful and the settings of components must "
                f"be the same in both sets, unlike {diffs}; see reward@curriculum.first=..."
            )

    def plan(self) -> StepPlan:
        if self.arrived:
            return super().plan()
        stage = "between" if self.share else "first"
        return StepPlan(stage=stage, rewards=self.mixed(self.share))

    def mixed(self, share: float) -> RewardSet:
        """The set of rewards at a share of the way, 0..1."""
        first, last = self.first, self.rewards
        components = {**first.components, **last.components}
        weights = {
            name: (1 - share) * first.weights.get(name, 0.0) + share * last.weights.get(name, 0.0)
            for name in components
        }
        return RewardSet(components=components, weights=weights, lawful=last.lawful)
