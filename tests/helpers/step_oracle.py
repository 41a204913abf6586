"""What a step's games and rewards ask for, computed without the code that trains.

Rewards, advantages and weights in numpy; each row by a forward pass of transformers' own code; the
gradient of an update by autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.helpers.talks import turns_of
from tests.helpers.tiny import WORDS
from tests.helpers.whole_step import MAX_TOKENS, SEED, TEMPERATURE, Played, reward
from wordle_rl.game.rules import feedback_code
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


@dataclass
class Read:
    """What a model says of each token of a row, given those before it; [T], [T, V], [T, H]."""

    logprobs: torch.Tensor
    every: torch.Tensor
    states: torch.Tensor


def read(model: Any, row: Row) -> Read:
    ids = torch.tensor([row.ids])
    out = model(input_ids=ids, output_hidden_states=True)
    every = (out.logits[0, :-1].double() / TEMPERATURE).log_softmax(-1)
    chosen = every.gather(-1, ids[0, 1:, None])[:, 0]
    return Read(
        torch.cat([torch.zeros(1), chosen]),
        torch.cat([torch.zeros(1, every.shape[1]), every]),
        torch.cat([torch.zeros(1, out.hidden_states[-1].shape[-1]), out.hidden_states[-1][0, :-1]]),
    )


@torch.no_grad()
def read_before(model: Any, rows: list[Row]) -> list[Read]:
    return [read(model, row) for row in rows]


class Oracle:
    """Advantages and weights of a step, from its games alone."""

    def __init__(self, played: Played) -> None:
        self.algorithm, self.name = played.algorithm, type(played.algorithm).__name__.lower()
        self.by_turn = played.fields.get("credit", "game") == "turn"
        self.discount = played.fields["discount"] if self.by_turn else 1.0
        self.unpaid = played.unpaid
        self.rollouts = played.result.rollouts
        self.groups = np.array([r.group for r in self.rollouts])
        self.rows = rows_of(self.rollouts)
        self.old = read_before(played.plain, self.rows)
        self.ref = read_before(played.reference, self.rows)
        self.values = None
        if played.head is not None:
            weight, bias = played.head
            self.values = [(r.states @ weight + bias).double() for r in self.old]
        self.rewards = [self._rewards(i) for i in range(len(self.rollouts))]
        self.returns = [self._returns(of_turns) for of_turns in self.rewards]
        self.totals = np.array([returns[0] for returns in self.returns])
        self.targets: list[np.ndarray] | None = None
        self.target_scale = 1.0
        self.pairs = {}  # better rollout -> worse
        self.per_turn = self._per_turn()
        self.letters = self._letters(played.fields.get("letter_weight", 0.0))

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

    def _returns(self, rewards: np.ndarray) -> np.ndarray:
        if not self.by_turn:
            return np.full(len(rewards), rewards.sum())
        return np.array([
            sum(self.discount ** (later - k) * rewards[later] for later in range(k, len(rewards)))
            for k in range(len(rewards))
        ])  # fmt: skip

    def _compare(self, rewards: np.ndarray) -> np.ndarray:
        if len(rewards) < 2 or np.ptp(rewards) < 1e-8:
            return np.zeros(len(rewards))
        if self.name == "rloo":
            n = len(rewards)
            return np.array([r - (rewards.sum() - r) / (n - 1) for r in rewards])
        centred = rewards - rewards.mean()
        return centred if self.name == "drgrpo" else centred / rewards.std(ddof=1)

    def _per_turn(self) -> list[np.ndarray]:
        found = [np.zeros(len(r)) for r in self.returns]
        groups = [np.flatnonzero(self.groups == g) for g in np.unique(self.groups)]
        if self.name in ("sft", "distill"):
            return [np.ones(len(r)) for r in self.returns]
        if self.name == "ppo":
            return self._gae()
        if self.name == "dpo":
            for members in groups:
                order = sorted(members, key=lambda i: -self.totals[i])
                best, worst = (
                    order[0],
                    max(i for i in members if self.totals[i] == self.totals[order[-1]]),
                )
                if self.totals[best] > self.totals[worst]:
                    self.pairs[best] = worst
                    found[best][:], found[worst][:] = 1.0, -1.0
            return found
        if self.name == "expertiteration":
            for members in groups:
                won = [i for i in members if self.rollouts[i].game.won]
                if won:
                    found[max(won, key=lambda i: (self.totals[i], -i))][:] = 1.0
            return found
        for members in groups:
            if not self.by_turn:
                for i, value in zip(members, self._compare(self.totals[members]), strict=True):
                    found[i][:] = value
                continue
            for k in range(max(len(found[i]) for i in members)):
                playing = [i for i in members if len(found[i]) > k]
                to_go = np.array([self.returns[i][k] for i in playing])
                for i, value in zip(playing, self._compare(to_go), strict=True):
                    found[i][k] = value
        if self.name == "dapo" and self.algorithm.overlong == "filter":
            for values, rollout in zip(found, self.rollouts, strict=True):
                for k, turn in enumerate(rollout.game.turns):
                    values[k] *= turn.reason != "truncated"
        return found

    def _gae(self) -> list[np.ndarray]:
        assert self.values is not None
        estimates, heads = [], []
        for i, rewards in enumerate(self.rewards):
            own = rewards if self.by_turn else np.append(np.zeros(len(rewards) - 1), rewards.sum())
            value = np.zeros(len(own) + 1)  # nothing follows the last turn
            for row, values in zip(self.rows, self.values, strict=True):
                if row.rollout == i:
                    for t, place in enumerate(row.place):
                        if place == 0:
                            value[row.turn[t]] = values[t]
            delta = own + self.discount * value[1:] - value[:-1]
            decay = self.discount * self.algorithm.lam
            estimates.append(np.array([
                sum(decay ** (later - k) * delta[later] for later in range(k, len(own)))
                for k in range(len(own))
            ]))  # fmt: skip
            heads.append(value[:-1])
        self.targets = [a + v for a, v in zip(estimates, heads, strict=True)]
        self.target_scale = np.concatenate(self.targets).std()
        every = np.concatenate(estimates)
        return [(a - every.mean()) / every.std() for a in estimates]

    def _letters(self, weight: float) -> dict[tuple[int, int, int], float]:
        """What is added at (rollout, turn, place in the answer)."""
        kept: dict[tuple[int, int, int], float] = {}
        for i, rollout in enumerate(self.rollouts if weight else ()):
            for k, turn in enumerate(rollout.game.turns):
                if turn.guess is None:
                    continue
                fitting = [
                    word for word in WORDS.allowed
                    if all(feedback_code(c.guess, word) == c.feedback for c in turn.state.clues)
                ]  # fmt: skip
                for letter in range(5):
                    begun = turn.guess[: letter + 1]
                    kept[i, k, letter] = float(any(word.startswith(begun) for word in fitting))
                    if not kept[i, k, letter]:
                        break
        means: dict[tuple[int, int, int], list[float]] = {}
        for (i, k, letter), value in kept.items():
            means.setdefault((self.groups[i], k, letter), []).append(value)
        found: dict[tuple[int, int, int], float] = {}
        for (i, k, letter), value in kept.items():
            place = i, k, letter // 2
            gained = weight * (value - np.mean(means[self.groups[i], k, letter]))
            found[place] = found.get(place, 0.0) + gained
        return found

    def advantage(self, row: Row) -> np.ndarray:
        """[T]"""
        values = [
            self.per_turn[row.rollout][k] + self.letters.get((row.rollout, k, place), 0.0)
            for k, place in zip(row.turn, row.place, strict=True)
        ]
        return np.where(row.trained, values, 0.0)

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
        if self.name in ("sft", "distill", "ppo"):
            return False
        return not algorithm.entropy and (not algorithm.beta or algorithm.kl == "reward")

    def weights(self, members: np.ndarray) -> np.ndarray:
        """[R] of each token of the rollouts of one update."""
        tokens = np.zeros(len(self.rollouts))
        for row in self.rows:
            tokens[row.rollout] += row.trained.sum()
        count, out = len(members), np.zeros(len(tokens))
        match self.name:
            case "grpo" | "gspo":
                out[members] = 1.0 / (count * tokens[members])
            case "drgrpo":
                out[members] = 1.0 / (count * self.algorithm.budget)
            case "rloo":
                out[members] = 1.0 / count
            case "expertiteration":
                kept = members[self.teaches[members]]
                out[kept] = 1.0 / tokens[kept].sum()
            case "dpo":
                for better, worse in self.pairs.items():
                    out[[better, worse]] = 1.0 / (len(self.pairs) * tokens[[better, worse]].sum())
            case _:
                out[members] = 1.0 / tokens[members].sum()
        return out

    def updates(self) -> Iterator[np.ndarray]:
        """The rollouts of each update."""
        for epoch in range(self.algorithm.epochs):
            for members in minibatches(
                self.groups, self.algorithm.minibatches, seed=SEED, step=0, epoch=epoch
            ):
                if not self.leaves_out or self.teaches[members].any():
                    yield members


@dataclass
class Found:
    """What an update does, computed the second way."""

    gradient: dict[str, torch.Tensor]
    metrics: dict[str, float]


def compute(oracle: Oracle, members: np.ndarray, model: Any, head: Any) -> Found:
    """The loss of one update and its gradient, with the model's weights before it."""
    algorithm, weights = oracle.algorithm, oracle.weights(members)
    teaches, name = oracle.teaches, oracle.name
    said: dict[str, list[np.ndarray]] = {}
    parts: list[tuple[Row, torch.Tensor, int]] = []
    loss = torch.zeros(())
    mine = [n for n, row in enumerate(oracle.rows) if row.rollout in members and row.trained.any()]
    reads = {n: read(model, oracle.rows[n]) for n in mine}

    def note(metric: str, values: Any, row: Row) -> None:
        if not oracle.leaves_out or teaches[row.rollout]:
            said.setdefault(metric, []).append(
                np.asarray(torch.as_tensor(values).detach())[row.trained]
            )

    moved = {n: reads[n].logprobs - oracle.old[n].logprobs for n in mine}
    for n in mine:
        row, now, old = oracle.rows[n], reads[n], oracle.old[n]
        trained = torch.from_numpy(row.trained)
        advantage = torch.from_numpy(oracle.advantage(row))
        note("ratio_gap", moved[n].exp() - 1, row)
        note("sampler_gap", (now.logprobs - torch.tensor(row.sampler)).abs(), row)
        if name in ("sft", "expertiteration"):
            token = -now.logprobs * advantage
        elif name == "distill":
            token = -distilled(oracle, row, now.every)
        elif name == "dpo":
            parts.append((row, (now.logprobs - oracle.ref[n].logprobs)[trained].sum(), n))
            continue
        else:
            log_ratio = moved[n]
            if name == "gspo":  # one ratio for the rollout, each token's own gradient
                whole = [m for m in mine if oracle.rows[m].rollout == row.rollout]
                drift = torch.cat(
                    [moved[m][torch.from_numpy(oracle.rows[m].trained)] for m in whole]
                )
                log_ratio = drift.mean().detach() + moved[n] - moved[n].detach()
            ratio = log_ratio.exp()
            near = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
            token = -torch.minimum(ratio * advantage, near * advantage)
            if algorithm.importance_cap:
                gap = old.logprobs - torch.tensor(row.sampler)
                token = token * gap.exp().clamp(max=algorithm.importance_cap)
                note("importance", gap.exp().clamp(max=algorithm.importance_cap), row)
            if algorithm.beta and algorithm.kl == "loss":
                gap = oracle.ref[n].logprobs - now.logprobs
                token = token + algorithm.beta * (gap.exp() - gap - 1)
                note("kl", gap.exp() - gap - 1, row)
            if algorithm.entropy:
                entropy = -(now.every.exp() * now.every).sum(-1)
                token = token - algorithm.entropy * entropy
                note("entropy", entropy, row)
            if name == "ppo":
                assert oracle.targets is not None and oracle.values is not None
                target = torch.from_numpy(oracle.targets[row.rollout][np.array(row.turn)])
                value = now.states @ head[0] + head[1]
                limit, before = algorithm.value_clip * oracle.target_scale, oracle.values[n]
                close = before + (value - before).clamp(-limit, limit)
                worst = torch.maximum((value - target) ** 2, (close - target) ** 2)
                token = token + 0.5 * algorithm.value_weight * worst / oracle.target_scale**2
        loss = loss + weights[row.rollout] * token[trained].sum()
    for better, worse in oracle.pairs.items():
        if better in members:
            gained = [sum(g for row, g, _ in parts if row.rollout == i) for i in (better, worse)]
            pairs = sum(b in members for b in oracle.pairs)
            loss = loss - torch.nn.functional.logsigmoid(
                algorithm.beta * (gained[0] - gained[1])
            ) / pairs  # fmt: skip
    loss.backward()
    metrics = {f"policy/{k}": np.concatenate(v).mean() for k, v in said.items()}
    for largest, of in (("ratio_gap", "ratio_gap"), ("largest_sampler_gap", "sampler_gap")):
        metrics[f"policy/{largest}"] = np.abs(np.concatenate(said[of])).max()
    gradient = {n: w.grad for n, w in model.named_parameters() if w.grad is not None}
    gradient |= {n: w.grad for n, w in zip(("head", "bias"), head or (), strict=False)}
    return Found(gradient, {**metrics, "loss": loss.item()})


def distilled(oracle: Oracle, row: Row, every: torch.Tensor) -> torch.Tensor:
    """[T] mean log-probability over what the teacher might have written next."""
    spelled = {
        turn.guess: tokens.ids
        for rollout in oracle.rollouts
        for turn, tokens in zip(rollout.game.turns, turns_of(rollout.talks), strict=True)
    }
    assert spelled.keys() >= {*WORDS.answers}, "each answer must have been guessed"
    found = torch.zeros(len(row.ids), dtype=torch.float64)
    for t in np.flatnonzero(row.trained):
        turn = oracle.rollouts[row.rollout].game.turns[row.turn[t]]
        begun = row.ids[t - row.place[t] : t]
        left = [
            spelled[word] for word in WORDS.answers
            if all(feedback_code(c.guess, word) == c.feedback for c in turn.state.clues)
            and spelled[word][: len(begun)] == begun
        ]  # fmt: skip
        found[t] = sum(every[t, ids[len(begun)]] for ids in left) / len(left)
    return found
