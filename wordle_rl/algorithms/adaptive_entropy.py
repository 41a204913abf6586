"""An entropy bonus that acts while entropy is low (after Skywork-OR1, 2025, arXiv 2505.22312)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from wordle_rl.algorithms.base import Algorithm, Array, LossInputs, Needs, Weight
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.runs.instantiate import Within


@dataclass(frozen=True, kw_only=True)
class AdaptiveEntropy(Grpo):
    """As grpo, with an entropy bonus of weight entropy x max(0, 1 - H / target).

    H: mean of -log p over all tokens drawn in the step, an estimate without bias of their mean
    entropy. The paper's weight is also 0 above the target. Below it the paper's weight rises by a
    constant with each step, and falls with each step above it; this one has no memory and grows
    with the distance from the target. So nothing but the policy needs to be saved.
    """

    beta: Weight = 0.0
    entropy: Annotated[float, Within(0, 100)] = 0.01
    # Nats a token, below which the bonus acts; the paper's value.
    target: Annotated[float, Within(0, 100, "(]")] = 0.2

    @cached_property
    def needs(self) -> Needs:
        # Also in steps where the bonus has no weight, so that all steps log it.
        return replace(super().needs, entropy=True, zero_advantages=True)

    def adapted(self, logprobs: Array) -> Algorithm:
        surprise = -float(logprobs.mean())
        return replace(self, entropy=self.entropy * max(0.0, 1.0 - surprise / self.target))

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        loss, metrics = super().loss(xp, terms)
        weight = xp.zeros_like(terms.advantages) + self.entropy
        return loss, metrics | {"entropy_weight": weight}
