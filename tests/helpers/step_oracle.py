"""What feeds an algorithm in a step and its updates, computed from the games and rewards alone.

Rewards and credit by hand; each row by a forward pass of transformers' own code; the gradient by
autograd. Advantages, weights and loss are the algorithm's, whose formulas tests/algorithms/ checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.helpers.talks import turns_of
from tests.helpers.whole_step import MAX_TOKENS, SEED, TEMPERATURE, Played, reward
from wordle_rl.algorithms.base import LossInputs, StepOutcomes
from wordle_rl.policy.batch import minibatches
from wordle_rl.rollouts.talk import Rollout


@dataclass
class Row:
    """One sequence of a rollout. All lists are as long as its ids."""

    rollout: int
    ids: list[int]
    turn: list[int]
    trained: np.ndarray
    sampler: list[float]
    place: list[int]  # of a token in its answer, -1 in a prompt


def rows_of(rollouts: list[Rollout]) -> list[Row]:
    rows: list[Row] = []
    for number, rollout in enumerate(rollouts):
        for k, turn in enumerate(turns_of(rollout.talks)):
            if turn.fresh or k == 0:
                rows.append(Row(number, [], [], np.zeros(0, bool), [], []))
            row, prompt, answer = rows[-1], turn.prompt_ids, turn
            row.ids += prompt + answer.ids
            row.turn += [k] * (len(prompt) + len(answer.ids))
            marks = [False] * len(prompt) + [turn.trained] * len(answer.ids)
            row.trained = np.append(row.trained, marks).astype(bool)
            row.sampler += [0.0] * len(prompt) + answer.logprobs
            row.place += [-1] * len(prompt) + [*range(len(answer.ids))]
    return rows


class Read(NamedTuple):
    """What a model says of each token of a row, given those before it; [T], [T, V], [T, H]."""

    logprobs: torch.Tensor
    every: torch.Tensor
    states: torch.Tensor


def read(model: Any, row: Row) -> Read:
    ids = torch.tensor([row.ids])
    out = model(input_ids=ids, output_hidden_states=True)
    every = (out.logits[0, :-1].double() / TEMPERATURE).log_softmax(-1)
    chosen = every.gather(-1, ids[0, 1:, None])[:, 0]
    states = out.hidden_states[-1][0, :-1]
    return Read(*(torch.cat([torch.zeros(1, *of.shape[1:]), of]) for of in (chosen, every, states)))


class Oracle:
    """Advantages and weights of a step, from its games alone."""

    def __init__(self, played: Played) -> None:
        self.algorithm, self.name = played.algorithm, type(played.algorithm).__name__.lower()
        by_turn = played.fields.get("credit", "game") == "turn"
        discount = played.fields["discount"] if by_turn else 1.0
        self.unpaid = played.unpaid
        self.rollouts = played.result.rollouts
        self.groups = np.array([r.group for r in self.rollouts])
        self.rows = rows_of(self.rollouts)
        with torch.no_grad():
            self.old = [read(played.plain, row) for row in self.rows]
            self.ref = [read(played.reference, row) for row in self.rows]
        self.values = None
        if played.head is not None:
            weight, bias = played.head
            self.values = [(r.states @ weight + bias).double() for r in self.old]
        rewards = [self._rewards(i) for i in range(len(self.rollouts))]
        outcomes = StepOutcomes(
            groups=self.groups,
            returns=[_returns(of_turns, by_turn, discount) for of_turns in rewards],
            won=np.array([rollout.game.won for rollout in self.rollouts]),
            complete=[
                np.array([turn.reason != "truncated" for turn in rollout.game.turns])
                for rollout in self.rollouts
            ],
            values=None if self.values is None else self._before_answers(rewards),
            by_turn=by_turn,
            discount=discount,
        )
        self.found = self.algorithm.advantages(outcomes)

    def _rewards(self, i: int) -> np.ndarray:
        """[K] the reward of each turn, with penalties."""
        rollout, found = self.rollouts[i], []
        for k, (turn, tokens) in enumerate(
            zip(rollout.game.turns, turns_of(rollout.talks), strict=True)
        ):
            value, length = reward(turn), len(tokens.ids)
            value *= rollout.game.secret not in self.unpaid
            if getattr(self.algorithm, "kl", "") == "reward":
                for row, old, ref in zip(self.rows, self.old, self.ref, strict=True):
                    mine = row.trained & (np.array(row.turn) == k) & (row.rollout == i)
                    gap = (old.logprobs - ref.logprobs).numpy()[mine].sum()
                    value -= self.algorithm.beta * gap
            if self.name == "dapo" and self.algorithm.overlong == "punish":
                buffer = 0.2 * MAX_TOKENS
                value -= min(max((length - (MAX_TOKENS - buffer)) / buffer, 0.0), 1.0)
            found.append(value)
        return np.array(found)

    def _before_answers(self, rewards: list[np.ndarray]) -> list[np.ndarray]:
        """What the head says before the first token of each answer."""
        assert self.values is not None
        found = [np.zeros(len(of_turns)) for of_turns in rewards]
        for row, values in zip(self.rows, self.values, strict=True):
            for t, place in enumerate(row.place):
                if place == 0:
                    found[row.rollout][row.turn[t]] = values[t]
        return found

    def advantage(self, row: Row) -> np.ndarray:
        """[T]"""
        return np.where(row.trained, self.found.per_turn[row.rollout][np.array(row.turn)], 0.0)

    @property
    def teaches(self) -> np.ndarray:
        """[R] whether any token of a rollout has an advantage."""
        found = np.zeros(len(self.rollouts), bool)
        for row in self.rows:
            found[row.rollout] |= bool(self.advantage(row).any())
        return found

    @property
    def leaves_out(self) -> bool:
        """Whether rollouts without any advantage have no gradient."""
        algorithm = self.algorithm
        if self.name in ("dpo", "expertiteration"):
            return True
        if self.name in ("sft", "ppo"):
            return False
        return not algorithm.entropy and (not algorithm.beta or algorithm.kl == "reward")

    def weights(self, members: np.ndarray) -> np.ndarray:
        """[R] of each token of the rollouts of one update."""
        tokens, out = np.zeros(len(self.rollouts), int), np.zeros(len(self.rollouts))
        for row in self.rows:
            tokens[row.rollout] += row.trained.sum()
        units = self.units[members]
        out[members] = self.algorithm.weights(tokens[members], self.teaches[members], units)
        return out

    @property
    def units(self) -> np.ndarray:
        return np.arange(len(self.rollouts)) if self.found.units is None else self.found.units

    def updates(self) -> Iterator[np.ndarray]:
        """The rollouts of each update."""
        for epoch in range(self.algorithm.epochs):
            for members in minibatches(
                self.groups, self.algorithm.minibatches, seed=SEED, step=0, epoch=epoch
            ):
                if not self.leaves_out or self.teaches[members].any():
                    yield members


def _returns(rewards: np.ndarray, by_turn: bool, discount: float) -> np.ndarray:
    """[K] reward from each turn on, or of the whole game."""
    turns = range(len(rewards))
    if not by_turn:
        return np.array([rewards.sum() for _ in turns])
    return np.array([sum(discount ** (n - k) * rewards[n] for n in turns[k:]) for k in turns])


def compute(
    oracle: Oracle, members: np.ndarray, model: Any, head: Any
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The gradient and the metrics of one update, with the model's weights before it."""
    algorithm, weights = oracle.algorithm, oracle.weights(members)
    kept = set(members[oracle.teaches[members]] if oracle.leaves_out else members)
    numbers = [n for n, row in enumerate(oracle.rows) if row.rollout in kept and row.trained.any()]
    rows, reads = zip(*((r := oracle.rows[n], read(model, r)) for n in numbers), strict=True)
    old, ref = ([of[n].logprobs for n in numbers] for of in (oracle.old, oracle.ref))

    def stack(values: Iterable[Any]) -> torch.Tensor:
        tensors = [torch.as_tensor(of).double() for of in values]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

    trained = stack(row.trained for row in rows) > 0

    def at(values: Iterable[Any]) -> torch.Tensor:
        return torch.where(trained, stack(values), 0.0)

    terms: dict[str, Any] = {}
    if algorithm.needs_entropy:
        terms["entropy"] = at(-(now.every.exp() * now.every).sum(-1) for now in reads)
    if oracle.name == "ppo":
        assert oracle.found.targets is not None and oracle.values is not None
        targets = (oracle.found.targets[row.rollout][np.array(row.turn)] for row in rows)
        terms["targets"], terms["target_scale"] = at(targets), oracle.found.target_scale
        terms["values"] = at(now.states @ head[0] + head[1] for now in reads)
        terms["old_values"] = at(oracle.values[n] for n in numbers)
    inputs = LossInputs(
        logprobs=at(now.logprobs for now in reads), old_logprobs=at(old), ref_logprobs=at(ref),
        trained=trained, sampler_logprobs=at(row.sampler for row in rows),
        advantages=at(oracle.advantage(row) for row in rows),
        units=torch.tensor([oracle.units[row.rollout] for row in rows]), **terms,
    )  # fmt: skip
    per_token, metrics = algorithm.loss(torch, inputs)
    loss = (per_token * torch.tensor([weights[row.rollout] for row in rows])[:, None])[
        trained
    ].sum()
    loss.backward()
    gap = (inputs.logprobs - inputs.sampler_logprobs).abs()
    ratio = (inputs.logprobs - inputs.old_logprobs).exp() - 1
    found = {name: value[trained].double().mean() for name, value in metrics.items()}
    found |= {"sampler_gap": gap[trained].mean(), "largest_sampler_gap": gap.max()}
    found |= {"ratio_gap": ratio.abs().max()}
    gradient = {n: w.grad for n, w in model.named_parameters() if w.grad is not None}
    gradient |= {n: w.grad for n, w in zip(("head", "bias"), head or (), strict=False)}
    return gradient, {"loss": loss.item(), **{f"policy/{k}": v.item() for k, v in found.items()}}
