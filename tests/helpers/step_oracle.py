"""What feeds an algorithm in a step and its updates, computed from the games and rewards alone.

Rewards, credit and rows by hand; scores by a forward pass of transformers' own code. Advantages and
weights are the algorithm's, whose formulas tests/algorithms/ checks, as it does the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.helpers.talks import turns_of
from tests.helpers.whole_step import MAX_TOKENS, SEED, TEMPERATURE, Played, reward
from wordle_rl.algorithms.base import StepOutcomes
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


@torch.no_grad()
def read(model: Any, row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability [T] of each token given those before it, and the states [T, H] before it."""
    ids = torch.tensor([row.ids])
    out = model(input_ids=ids, output_hidden_states=True)
    every = (out.logits[0, :-1].double() / TEMPERATURE).log_softmax(-1)
    chosen = every.gather(-1, ids[0, 1:, None])[:, 0].numpy()
    states = out.hidden_states[-1][0, :-1].numpy()
    return np.append(0.0, chosen), np.concatenate([np.zeros((1, states.shape[1])), states])


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
        old = [read(played.plain, row) for row in self.rows]
        self.old = [logprobs for logprobs, _ in old]
        self.ref = [read(played.reference, row)[0] for row in self.rows]
        self.values = None
        if played.head is not None:
            weight, bias = (part.numpy() for part in played.head)
            self.values = [states @ weight + bias for _, states in old]
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
                    value -= self.algorithm.beta * (old - ref)[mine].sum()
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

    def updates(self) -> Iterator[list[dict[str, np.ndarray]]]:
        """What each update is fed: fields of the Batch for each of its rows, by place [T]."""
        for epoch in range(self.algorithm.epochs):
            for members in minibatches(
                self.groups, self.algorithm.minibatches, seed=SEED, step=0, epoch=epoch
            ):
                weights = self.weights(members)
                kept = members[self.teaches[members]] if self.leaves_out else members
                rows = [n for n, row in enumerate(self.rows) if row.rollout in kept]
                if rows := [n for n in rows if self.rows[n].trained.any()]:
                    yield [self._fields(n, weights) for n in rows]

    def _fields(self, n: int, weights: np.ndarray) -> dict[str, np.ndarray]:
        row = self.rows[n]
        found = {
            "ids": row.ids, "sampler_logprobs": row.sampler, "advantages": self.advantage(row),
            "weights": [weights[row.rollout]] * len(row.ids),
        }  # fmt: skip
        algorithm = self.algorithm
        if algorithm.epochs * algorithm.minibatches > 1 or algorithm.scores_rollouts:
            found["old_logprobs"] = self.old[n]
        if algorithm.needs_reference:
            found["ref_logprobs"] = self.ref[n]
        if self.values is not None:
            assert self.found.targets is not None
            found["old_values"] = self.values[n]
            found["targets"] = self.found.targets[row.rollout][np.array(row.turn)]
        return {name: np.asarray(values)[row.trained] for name, values in found.items()}


def _returns(rewards: np.ndarray, by_turn: bool, discount: float) -> np.ndarray:
    """[K] reward from each turn on, or of the whole game."""
    turns = range(len(rewards))
    if not by_turn:
        return np.array([rewards.sum() for _ in turns])
    return np.array([sum(discount ** (n - k) * rewards[n] for n in turns[k:]) for k in turns])
