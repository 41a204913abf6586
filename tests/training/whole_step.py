"""A real step of a small policy: its games, and what each update is fed and does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from tests.helpers.backends import Backend
from tests.helpers.tiny import (
    WORDS,
    Scores,
    plain_copy,
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
from wordle_rl.training.step import StepResult, learn_step, sample_step

TEMPERATURE, MAX_TOKENS, SEED = 0.8, 8, 5
HEAD = "value_head."  # before the names of its weights
VOCABULARY = (*WORDS.allowed, "crank")  # which is in no list


def win(turn: PlayedTurn) -> float:
    return 2.0 * turn.won


def rest(turn: PlayedTurn) -> float:
    return 0.1 * turn.tokens + 0.3 * turn.state.turn


def parts_of() -> dict[str, Callable[[PlayedTurn], float]]:
    """The parts of the reward, of weight 1."""
    return {"win": win, "rest": rest}


@dataclass(frozen=True, kw_only=True)
class NothingForSome(RewardSet):
    """Pays nothing for some secrets, so that their groups teach nothing."""

    unpaid: tuple[str, ...]

    def reward(self, game: Game) -> GameReward:
        result = super().reward(game)
        zeros = tuple(dict.fromkeys(turn, 0.0) for turn in result.turns)
        return GameReward(turns=zeros) if game.secret in self.unpaid else result


class Spells(HFTokenizer):
    """Reads two letters of a word into each token of an answer; too few tokens are no guess."""

    def decode(self, ids: list[int]) -> str:
        word = VOCABULARY[ids[0] % len(VOCABULARY)] if ids else ""
        text = f"<guess>{word[: 2 * len(ids)]}"
        return f"{text}</guess>" if 2 * len(ids) >= len(word) else text


def off_the_mark(engine: Any) -> Any:
    """An engine whose log-probabilities are not quite the trainer's, as in another precision."""
    complete = engine.complete

    def shift(completion: Completion) -> Completion:
        shifts = [0.1 * ((i + len(completion.ids)) % 3 - 1) for i in range(len(completion.ids))]
        logprobs = [p + (p != 0.0) * s for p, s in zip(completion.logprobs, shifts, strict=True)]
        return replace(completion, logprobs=logprobs)  # nobody drew what a grammar forced

    engine.complete = lambda *arguments: [shift(completion) for completion in complete(*arguments)]
    return engine


@dataclass
class Moment:
    """The weights of a moment, as a model of transformers' own code."""

    model: Any
    head: tuple[torch.Tensor, torch.Tensor] | None = None  # of values

    @classmethod
    def of(cls, model: Any, weights: dict[str, torch.Tensor]) -> Moment:
        """model: any with the same shapes. weights: by name, a value head's too if there is one."""
        clone, head = plain_copy(model), None
        with torch.no_grad():
            for name, parameter in clone.named_parameters():
                parameter.copy_(weights[name])
        if f"{HEAD}weight" in weights:
            parts = (weights[f"{HEAD}{name}"].clone() for name in ("weight", "bias"))
            head = tuple(part.requires_grad_() for part in parts)
        return cls(clone, head)

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        head = zip((f"{HEAD}weight", f"{HEAD}bias"), self.head or (), strict=False)
        return {**dict(self.model.named_parameters()), **dict(head)}


class TorchWeights:
    """The weights and gradients of a policy by name."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        head = self.policy.machine.lm.value_head
        head_weights = dict(head.named_parameters()) if head else {}
        weights = dict(self.policy.machine.model.named_parameters())
        return weights | {f"{HEAD}{name}": weight for name, weight in head_weights.items()}

    def get(self) -> dict[str, torch.Tensor]:
        return {name: weight.detach().clone() for name, weight in self._parameters().items()}

    def put(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters().items():
                parameter.copy_(weights[name])
        self.policy.machine.refresh_copy()

    def keep_gradients(self, records: list[dict[str, torch.Tensor]]) -> None:
        """Add the gradients of each update to a list."""

        def keep() -> None:
            parameters = self._parameters().items()
            records.append({n: p.grad.clone() for n, p in parameters if p.grad is not None})

        self.policy.machine.apply_gradients.insert(0, keep)


class MlxWeights:
    """The same on MLX."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def get(self) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(np.array(w)) for name, w in self.policy.machine.weights.items()}

    def put(self, weights: dict[str, torch.Tensor]) -> None:
        import mlx.core as mx

        self.policy.machine.weights = {name: mx.array(w.numpy()) for name, w in weights.items()}
        self.policy.machine.refresh_copy()

    def keep_gradients(self, records: list[dict[str, torch.Tensor]]) -> None:
        apply = self.policy.machine.apply_gradients

        def keep(gradients: Any) -> None:
            records.append({name: torch.tensor(np.array(g)) for name, g in gradients.items()})
            apply(gradients)

        self.policy.machine.apply_gradients = keep


@dataclass
class Played:
    """What a step did: its games, and each update."""

    algorithm: Any
    fields: dict[str, Any]
    unpaid: tuple[str, ...]
    encode: Callable[[str], list[int]]  # the answer that makes a guess
    lagged: bool  # whether the policy changed between playing and learning
    reference: Moment
    player: Moment  # the policy that played
    result: StepResult
    letters: list[list[np.ndarray]]  # of each token of each answer, its advantage by letters
    # Of each update: the weights before it, what it was fed, its metrics, and its gradient.
    moments: list[Moment] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)


def play(backend: Backend, algorithm: Any, config: dict[str, Any]) -> Played:
    """A step of 3 groups of 4 games.

    config: fields of the recipe and its rollouts; `unpaid` secrets; `grammar` of the draws; `other`
    for another model as reference; `lag` to change the weights between playing and learning.
    """
    fields = dict(config)
    unpaid, grammar = fields.pop("unpaid", ("sleep",)), fields.pop("grammar", None)
    other, lag = fields.pop("other", False), fields.pop("lag", False)
    base = HFTokenizer(qwen_like_tokenizer())
    tokenizer = base if grammar else Spells(base.inner, extra_stop_ids=tuple(range(5, 340, 6)))
    options = {"temperature": TEMPERATURE, "lr": 3e-3, "max_context": 900}
    policy = backend.policy_of(qwen(340), tokenizer, **options)
    weights = TorchWeights(policy) if backend.name == "torch" else MlxWeights(policy)
    draw = torch.Generator().manual_seed(1)

    def disturb(size: float) -> None:
        noise = {n: torch.randn(w.shape, generator=draw) for n, w in weights.get().items()}
        weights.put({n: w + size * noise[n] for n, w in weights.get().items()})

    policy.keep_reference()
    if other:
        policy.set_reference(backend.policy_of(qwen(340, seed=7), tokenizer, **options), "other")
    reference = Moment.of(qwen(340), dict(qwen(340, seed=7 * other).named_parameters()))
    disturb(0.03)
    if algorithm.needs.values:
        policy.machine.add_value_head()
        size = weights.get()[f"{HEAD}weight"].shape
        head = {"weight": torch.randn(size, generator=draw), "bias": torch.tensor(0.3)}
        weights.put(weights.get() | {f"{HEAD}{name}": weight for name, weight in head.items()})
    engine, update = policy.engine, policy.update
    policy.engine = lambda: off_the_mark(engine())
    sampling = Sampling(
        temperature=TEMPERATURE, max_tokens=60 if grammar else MAX_TOKENS, grammar=grammar
    )
    recipe = recipe_of(
        algorithm, win, seed=SEED, groups=3, num_generations=4, sampling=sampling, **fields
    )
    components = {name: Scores(of=part) for name, part in parts_of().items()}
    rewards = NothingForSome(
        components=components, weights=dict.fromkeys(components, 1.0), lawful=False, unpaid=unpaid
    )
    step = step_of(policy, replace(recipe, rewards=rewards), 0)
    sample, player = sample_step(step), Moment.of(qwen(340), weights.get())
    if lag:
        disturb(0.02)
        sample = replace(sample, learnt=-1)
    by_letter = recipe.rollout.letter_weight > 0
    outcome = Played(
        algorithm=algorithm,
        fields=config,
        unpaid=unpaid,
        lagged=lag,
        reference=reference,
        player=player,
        encode=lambda word: step.form.chat.answer(step.form.write(word)),
        letters=letter_advantages(sample.rollouts, recipe, tokenizer) if by_letter else [],
        result=StepResult(rollouts=[], advantages=[], metrics={}),
    )

    def record(batch: Batch, algorithm: Any) -> dict[str, float]:
        outcome.moments.append(Moment.of(qwen(340), weights.get()))
        outcome.batches.append(batch)
        outcome.metrics.append(update(batch, algorithm))
        return outcome.metrics[-1]

    policy.update = record
    weights.keep_gradients(outcome.gradients)
    outcome.result = learn_step(step, sample)
    return outcome
