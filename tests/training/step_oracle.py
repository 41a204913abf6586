"""A step and its updates, computed from the games and rewards alone.

Rewards, credit, rows and losses by hand; scores and gradients by transformers' own code. Advantages
and weights are the algorithm's, whose formulas tests/algorithms/ checks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.helpers.talks import turns_of
from tests.training.whole_step import MAX_TOKENS, SEED, TEMPERATURE, Moment, Played, reward
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


def read(moment: Moment, row: Row) -> dict[str, torch.Tensor]:
    """Of each token [T], with gradient: its log-probability, and entropy and value before it."""
    ids = torch.tensor([row.ids])
    out = moment.model(input_ids=ids, output_hidden_states=True)
    every = (out.logits[0, :-1].double() / TEMPERATURE).log_softmax(-1)
    found = {
        "now": every.gather(-1, ids[0, 1:, None])[:, 0],
        "entropy": -(every.exp() * every).sum(-1),
    }
    if moment.head is not None:
        found["values"] = (out.hidden_states[-1][0, :-1] @ moment.head[0] + moment.head[1]).double()
    return {name: torch.cat([torch.zeros(1), values]) for name, values in found.items()}


@torch.no_grad()
def read_all(moment: Moment, rows: list[Row], name: str) -> list[np.ndarray]:
    return [read(moment, row)[name].numpy() for row in rows]


class Oracle:
    """Advantages of a step, and what each update is fed and its loss, from its games alone."""

    def __init__(self, played: Played) -> None:
        self.algorithm, self.name = played.algorithm, type(played.algorithm).__name__.lower()
        by_turn = played.fields.get("credit", "game") == "turn"
        discount = played.fields["discount"] if by_turn else 1.0
        self.unpaid = played.unpaid
        self.rollouts = played.result.rollouts
        self.groups = np.array([r.group for r in self.rollouts])
        self.rows = rows_of(self.rollouts)
        start = played.moments[0]
        self.old = read_all(start, self.rows, "now")
        self.ref = read_all(played.reference, self.rows, "now")
        self.values = None if start.head is None else read_all(start, self.rows, "values")
        self.met: set[str] = set()  # cases of the losses
        self.clipped: list[Tensor] = []  # of the last loss: which tokens lost their gradient
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
        self.letters = played.letters

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
        found = np.where(row.trained, self.found.per_turn[row.rollout][np.array(row.turn)], 0.0)
        if self.letters:
            for t in np.flatnonzero(row.trained):
                found[t] += (of_letter := self.letters[row.rollout][row.turn[t]][row.place[t]])
                self.met |= {"a letter counts"} if of_letter else set()
        return found

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

    def updates(self) -> Iterator[list[tuple[Row, dict[str, np.ndarray]]]]:
        """The rows of each update, and what it is fed: fields of the Batch at trained tokens."""
        for epoch in range(self.algorithm.epochs):
            for members in minibatches(
                self.groups, self.algorithm.minibatches, seed=SEED, step=0, epoch=epoch
            ):
                weights = self.weights(members)
                kept = members[self.teaches[members]] if self.leaves_out else members
                rows = [n for n, row in enumerate(self.rows) if row.rollout in kept]
                if rows := [n for n in rows if self.rows[n].trained.any()]:
                    yield [(self.rows[n], self._fields(n, weights)) for n in rows]

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

    def loss(self, moment: Moment, rows: list[tuple[Row, dict[str, np.ndarray]]]) -> torch.Tensor:
        """The loss of one update, with the gradient by the weights before it."""
        tokens, self.clipped = [], []
        for row, given in rows:
            now = {name: values[row.trained] for name, values in read(moment, row).items()}
            fed = {name: torch.from_numpy(values.astype(float)) for name, values in given.items()}
            fed.setdefault("old_logprobs", now["now"].detach())
            tokens.append(Tokens(rollout=row.rollout, **fed, **now))
        algorithm = self.algorithm
        if self.name == "dpo":
            return pairs_loss(algorithm.beta, tokens, self.units)
        if self.name in ("expertiteration", "sft"):
            return -torch.stack([(t.weights * t.advantages * t.now).sum() for t in tokens]).sum()
        parts = []
        for _, mine in groupby(tokens, lambda one: one.rollout):
            parts += policy_gradient_loss(
                algorithm, [*mine], self.name == "gspo", self.met, self.clipped
            )
        if self.values is not None:
            scale = float(np.concatenate(self.found.targets).std())
            parts += [
                algorithm.value_weight * value_loss(algorithm.value_clip, scale, t, self.met)
                for t in tokens
            ]
        return torch.stack(parts).sum()


def _returns(rewards: np.ndarray, by_turn: bool, discount: float) -> np.ndarray:
    """[K] reward from each turn on, or of the whole game."""
    turns = range(len(rewards))
    if not by_turn:
        return np.array([rewards.sum() for _ in turns])
    return np.array([sum(discount ** (n - k) * rewards[n] for n in turns[k:]) for k in turns])


# -- losses as the papers write them: by cases, in float64, row by row ---------------------------
# `met` collects the cases that occurred, so that the test can ask for them.


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The trained tokens [T] of one row. Its first three have a gradient."""

    now: Tensor  # log-probability
    entropy: Tensor
    values: Tensor | None = None
    rollout: int
    ids: Tensor
    advantages: Tensor
    weights: Tensor
    sampler_logprobs: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor | None = None
    old_values: Tensor | None = None
    targets: Tensor | None = None


def policy_gradient_loss(
    algorithm: Any, rows: list[Tokens], one_ratio: bool, met: set[str], clipped: list[Tensor]
) -> list[Tensor]:
    """Of the rows of one rollout. one_ratio: for the whole rollout (GSPO-token, eq. 13 and 14)."""
    moved = torch.cat([t.now - t.old_logprobs for t in rows])
    of_rollout = moved.mean().detach().exp()
    met |= {"several sequences"} if one_ratio and len(rows) > 1 else set()
    found = []
    for t in rows:
        drift = (t.now - t.now.detach()).exp()  # 1, with the slope of a ratio
        ratio = of_rollout * drift if one_ratio else (t.now - t.old_logprobs).exp()
        above = (t.advantages > 0) & (ratio > 1 + algorithm.clip_high)
        below = (t.advantages < 0) & (ratio < 1 - algorithm.clip_low)
        met |= {name for name, where in (("above", above), ("below", below)) if where.any()}
        clipped.append((above | below).double())
        ratio = torch.where(above, 1 + algorithm.clip_high, ratio)
        loss = -torch.where(below, 1 - algorithm.clip_low, ratio) * t.advantages
        if algorithm.cap is not None:
            importance = (t.old_logprobs - t.sampler_logprobs).exp()
            capped = importance > algorithm.cap
            met |= {"importance capped"} if capped.any() else set()
            met |= {"importance below 1"} if (importance < 1).any() else set()
            loss = loss * torch.where(capped, algorithm.cap, importance)
        if algorithm.beta and algorithm.kl == "loss":
            ratio_of_reference = (t.ref_logprobs - t.now).exp()
            loss = loss + algorithm.beta * (ratio_of_reference - 1 - ratio_of_reference.log())
        found.append((t.weights * (loss - algorithm.entropy * t.entropy)).sum())
    return found


def value_loss(clip: float, scale: float, t: Tokens, met: set[str]) -> Tensor:
    """Half the squared error. A value that came nearer by more than it may counts as held back."""
    assert t.values is not None and t.old_values is not None
    most = clip * scale
    held = t.old_values + most * (t.values - t.old_values).sign()
    too_far = (t.values - t.old_values).abs() > most
    nearer = (t.values - t.targets).abs() < (held - t.targets).abs()
    met |= {"value held"} if (too_far & nearer).any() else set()
    met |= {"value too far and worse"} if (too_far & ~nearer).any() else set()
    errors = (torch.where(too_far & nearer, held, t.values) - t.targets) / scale
    return (t.weights * errors.square()).sum() / 2


def pairs_loss(beta: float, rows: list[Tokens], units: np.ndarray) -> Tensor:
    """The mean over pairs of -log sigmoid of how much more the better one gained: DPO, eq. 7."""
    margins: dict[int, Tensor] = {}
    for t in rows:
        gained = (t.advantages * (t.now - t.ref_logprobs)).sum()  # the worse one has -1
        unit = int(units[t.rollout])
        margins[unit] = margins.get(unit, torch.zeros(())) + beta * gained
    return (1 + (-torch.stack([*margins.values()])).exp()).log().mean()
