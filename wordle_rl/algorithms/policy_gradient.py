"""The base of the policy-gradient algorithms: clipped ratios, KL, entropy bonus and credit.

Each algorithm has a file of its own that says how it differs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from wordle_rl.algorithms.base import (
    START,
    Advantages,
    Algorithm,
    Array,
    LossInputs,
    Needs,
    StepOutcomes,
    Weight,
)
from wordle_rl.algorithms.credit import Scale, game_advantages, group_advantages, turn_advantages
from wordle_rl.runs.instantiate import Within

AUTO_CAP = 2.0  # importance_cap=auto where another program or policy draws the tokens
ClipLow = Annotated[float, Within(0, 1, "(]")]
ClipHigh = Annotated[float, Within(0, 1000, "(]")]


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(Algorithm):
    """loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + beta KL - entropy H, per token.

    r: the probability now divided by the one before the first update of the batch, with trainer.lag
    too, whoever drew the token. A: advantage.

    semantic adds its weight times -log p(allowed), p(allowed) being the probability that a draw
    from the whole vocabulary is one of the grammar's choices. The model learns the rules that the
    grammar enforces, and no reward is needed for it. Tokens that the grammar forced count here and
    in no other term, weight or mean. Summed over an answer and averaged over drawn answers, the
    loss is the KL divergence of the policy without the grammar from the one with it. That holds of
    its value, not of its gradient: that drawn answers change with the policy is left out. Source:
    Xu et al. 2018, "A Semantic Loss Function for Deep Learning with Symbolic Knowledge" (arXiv
    1711.11157), of each next token.

    importance_cap multiplies the first term by min(p_trainer / p_sampler, importance_cap), both
    probabilities from before the first update. Tokens sampled in another precision, or by another
    engine or policy, then count as if the trainer had sampled them. auto is 2 where another program
    or, with trainer.lag, an earlier policy draws the tokens, and no such weight elsewhere.
    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy training".

    kl=reward subtracts beta (log p - log p_ref), summed over an answer's tokens, from the reward of
    its turn instead, as in arXiv 2009.01325. p is the policy that played.
    """

    clip_low: ClipLow = 0.2  # how far the probability ratio may fall below 1
    clip_high: ClipHigh = 0.2  # how far it may rise above 1
    beta: Weight = 0.0  # of the KL divergence from the reference
    reference: str = START  # or another model
    kl: Literal["loss", "reward"] = "loss"  # where the divergence is counted
    entropy: Annotated[float, Within(0, 100)] = 0.0  # weight of the entropy bonus
    semantic: Weight = 0.0  # of the semantic loss
    scale: Scale = "none"  # std divides by the deviation of the rewards compared
    # None applies no such weight.
    importance_cap: Annotated[float, Within(1, 1e6)] | Literal["auto"] | None = None
    drawn_elsewhere: bool = False  # whether another program or policy draws the tokens

    @property
    def cap(self) -> float | None:
        """importance_cap as a number; None applies no such weight."""
        if self.importance_cap == "auto":
            return AUTO_CAP if self.drawn_elsewhere else None
        return self.importance_cap

    @cached_property
    def needs(self) -> Needs:
        has_kl, in_loss = self.beta > 0.0, self.kl == "loss"
        entropy, allowed = self.entropy > 0.0, self.semantic > 0.0
        return Needs(
            reference=has_kl,
            entropy=entropy,
            allowed=allowed,
            scores=has_kl and not in_loss,
            zero_advantages=entropy or allowed or (has_kl and in_loss),
            whole_answers=False,
        )

    def check(self, num_generations: int) -> None:
        self.compare(np.zeros((1, num_generations)))

    def penalties(
        self, lengths: Array, max_tokens: int, divergence: Array | None = None
    ) -> dict[str, Array]:
        if self.beta == 0.0 or self.kl == "loss":
            return {}
        assert divergence is not None
        return {"kl": -self.beta * divergence}

    def advantages(self, outcomes: StepOutcomes) -> Advantages:
        credit = turn_advantages if outcomes.by_turn else game_advantages
        return Advantages(per_turn=credit(outcomes, self.compare))

    def compare(self, rewards: Array) -> Array:
        """Advantages [G, N] of rollouts against their groups: the algorithm's baseline and scale.

        rewards: [G, N] of whole games. With credit by turn, the rewards from one turn on of the
        rollouts of one group that still play at that turn, which are 2 or more.
        """
        return group_advantages(rewards, self.scale)

    def weights(self, lengths: Array, used: Array, units: Array) -> Array:
        # Each rollout has 1 / R, which its tokens share evenly.
        return 1.0 / (len(lengths) * np.maximum(lengths, 1))

    def log_ratio(self, xp: Any, terms: LossInputs) -> Any:
        """Logarithm [S, T] of the ratio that is clipped."""
        return terms.logprobs - terms.old_logprobs

    def surrogate(self, xp: Any, terms: LossInputs) -> tuple[Any, Any, Any]:
        """What learns from advantages [S, T]: the loss, the ratio, and whether that was clipped."""
        return clipped_surrogate(
            xp, self.log_ratio(xp, terms), terms.advantages, low=self.clip_low, high=self.clip_high
        )

    def loss(self, xp: Any, terms: LossInputs) -> tuple[Any, dict[str, Any]]:
        loss, ratio, clipped = self.surrogate(xp, terms)
        metrics = {"ratio": ratio, "clipped": clipped}
        if self.cap is not None:
            weight = xp.exp(terms.old_logprobs - terms.sampler_logprobs)
            metrics["importance_capped"] = weight > self.cap
            metrics["importance"] = xp.clip(weight, 0.0, self.cap)
            loss = loss * metrics["importance"]
        if self.beta > 0.0 and self.kl == "loss":
            metrics["kl"] = kl_k3(xp, terms.logprobs, terms.ref_logprobs)
            loss = loss + self.beta * metrics["kl"]
        if self.needs.entropy:
            metrics["entropy"] = terms.entropy
            loss = loss - self.entropy * terms.entropy
        if self.semantic > 0.0:
            metrics["semantic"] = -terms.allowed
            loss = loss + self.semantic * metrics["semantic"]
        return loss, metrics


def clipped_surrogate(
    xp: Any, log_ratio: Any, advantages: Any, *, low: float, high: float
) -> tuple[Any, Any, Any]:
    """Pessimistic clipped policy-gradient loss, per token.

    log_ratio: log-probability now minus the old policy's. low, high: how far the ratio may fall
    below and rise above 1.
    Returns loss, ratio, and 1 where the clip removed the gradient.
    Source: PPO (arXiv 1707.06347), eq. 7; the asymmetric range is DAPO's (arXiv 2503.14476).
    """
    ratio = xp.exp(log_ratio)
    gain = ratio * advantages
    clipped_gain = xp.clip(ratio, 1.0 - low, 1.0 + high) * advantages
    return -xp.minimum(gain, clipped_gain), ratio, clipped_gain < gain


def kl_k3(xp: Any, logprobs: Any, ref_logprobs: Any) -> Any:
    """KL divergence from the reference, per token: exp(d) - d - 1 with d = ref - policy.

    Never negative. Value and slope are 0 at equality. Unbiased for samples of the policy.
    Source: J. Schulman, "Approximating KL divergence" (2020); arXiv 2402.03300, eq. 4.
    """
    gap = ref_logprobs - logprobs
    return xp.exp(gap) - gap - 1.0
