"""A real step of a small policy: its games, and what each update is fed and does."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tests.helpers.tiny import (
    WORDS,
    plain_copy,
    policy_of,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    step_of,
)
from wordle_rl.game.rules import Game, PlayedTurn
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rewards.scoring import GameReward, RewardSet
from wordle_rl.training.advantages import letter_advantages
from wordle_rl.training.step import StepResult, train_step

TEMPERATURE, MAX_TOKENS, SEED = 0.8, 8, 5
SPOKEN = (*WORDS.allowed, "crank")  # which is in no list


def reward(turn: PlayedTurn) -> float:
    return 2.0 * turn.won + 0.1 * turn.tokens + 0.3 * turn.state.turn


@dataclass(frozen=True, kw_only=True)
class NothingForSome(RewardSet):
    """Pays nothing for some secrets, so that their groups teach nothing."""

    unpaid: tuple[str, ...]

    def reward(self, game: Game) -> GameReward:
        found = super().reward(game)
        nothing = tuple(dict.fromkeys(turn, 0.0) for turn in found.turns)
        return GameReward(turns=nothing) if game.secret in self.unpaid else found


class Spells(HFTokenizer):
    """Reads two letters of a word into each token of an answer; too few tokens are no guess."""

    def decode(self, ids: list[int]) -> str:
        word = SPOKEN[ids[0] % len(SPOKEN)] if ids else ""
        return f"<guess>{word[: 2 * len(ids)]}" + "</guess>" * (2 * len(ids) >= len(word))


def off_the_mark(engine: Any) -> Any:
    """An engine whose log-probabilities are not quite the trainer's, as in another precision."""
    complete = engine.complete

    def shifted(drawn: Completion) -> Completion:
        shifts = [0.1 * ((i + len(drawn.ids)) % 3 - 1) for i in range(len(drawn.ids))]
        return replace(drawn, logprobs=np.add(drawn.logprobs, shifts).tolist())

    engine.complete = lambda *arguments: [shifted(drawn) for drawn in complete(*arguments)]
    return engine


@dataclass
class Moment:
    """The weights of a moment, as a model of transformers' own code."""

    model: Any
    head: tuple[torch.Tensor, torch.Tensor] | None = None  # of values

    @classmethod
    def of(cls, policy: Any) -> Moment:
        head = policy.lm.value_head
        copies = head and tuple(copy.deepcopy(part) for part in head.parameters())
        return cls(plain_copy(policy.model), copies)

    @property
    def weights(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *(self.head or ())]


@dataclass
class Played:
    """What a step did: its games, and each update."""

    algorithm: Any
    fields: dict[str, Any]
    unpaid: tuple[str, ...]
    reference: Moment
    result: StepResult
    letters: list[list[np.ndarray]]  # of each token of each answer, its advantage by letters
    # Of each update: the weights before it, what it was fed, its metrics, and its gradient.
    moments: list[Moment]
    batches: list[Batch]
    metrics: list[dict[str, float]]
    gradients: list[list[torch.Tensor]]


def play(algorithm: Any, fields: dict[str, Any]) -> Played:
    fields = dict(fields)
    unpaid = fields.pop("unpaid", ("sleep",))
    tokenizer = Spells(qwen_like_tokenizer(), extra_stop_ids=tuple(range(5, 340, 6)))
    policy = policy_of(qwen(340), tokenizer, temperature=TEMPERATURE, lr=3e-3, max_context=900)
    policy.keep_reference()
    reference, draw = Moment.of(policy), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=draw)
    if algorithm.needs_values:
        policy.add_value_head()
        weight, bias = policy.trainable[-2:]
        with torch.no_grad():
            weight.copy_(torch.randn(weight.shape, generator=draw))
            bias.fill_(0.3)
    engine = policy.engine
    policy.engine = lambda: off_the_mark(engine())
    moments, batches, metrics, gradients = [], [], [], []
    update = policy.update

    def record(batch: Batch, algorithm: Any) -> dict[str, float]:
        moments.append(Moment.of(policy))
        batches.append(batch)
        metrics.append(update(batch, algorithm))
        return metrics[-1]

    def keep_gradient() -> None:
        gradients.append([weight.grad.clone() for weight in policy.trainable])

    policy.update = record
    policy.apply_gradients.insert(0, keep_gradient)
    recipe = recipe_of(
        algorithm, reward, seed=SEED, groups=3, num_generations=4,
        sampling=Sampling(temperature=TEMPERATURE, max_tokens=MAX_TOKENS), **fields,
    )  # fmt: skip
    paid = recipe.rewards
    rewards = NothingForSome(
        components=paid.components, weights=paid.weights, lawful=False, unpaid=unpaid
    )
    result = train_step(step_of(policy, replace(recipe, rewards=rewards), 0))
    by_letter = recipe.rollout.letter_weight > 0
    letters = letter_advantages(result.rollouts, recipe, tokenizer) if by_letter else []
    return Played(
        algorithm, fields, unpaid, reference, result, letters, moments, batches, metrics, gradients
    )
