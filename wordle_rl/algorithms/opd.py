"""On-policy distillation: the policy plays, and another model judges each token that it drew.

K. Lu, "On-Policy Distillation" (Thinking Machines Lab 2025), as a policy gradient. Before it
MiniLLM (arXiv 2306.08543) and GKD (arXiv 2306.13649).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from wordle_rl.algorithms.base import START, Array, LossInputs, Needs, Weight, token_mean
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.algorithms.policy_gradient import kl_k3


@dataclass(frozen=True, kw_only=True)
class Opd(Grpo):
    """As grpo, averaged over all tokens, with A = log p_ref - log p + reward_weight x grpo's A.

    The first two are of the drawn token, before the first update. Their mean is minus the reverse
    KL divergence from the reference, which each token answers for by itself.
    """

    beta: Weight = 0.0
    reward_weight: Weight = 0.0

    @cached_property
    def needs(self) -> Needs:
        return replace(super().needs, reference=True, zero_advantages=True)

    def check(self, num_generations: int) -> None:
        if self.reward_weight:
            super().check(num_generations)
        elif self.reference == START:
            raise ValueError("algorithm.reference must be another model than the start to teach it")

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        return token_mean(lengths)

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        gap = terms.ref_logprobs - terms.old_logprobs
        inputs = replace(terms, advantages=gap + self.reward_weight * terms.advantages)
        loss, metrics = super().loss(xp, inputs)
        return loss, {"kl": kl_k3(xp, terms.logprobs, terms.ref_logprobs), **metrics}
