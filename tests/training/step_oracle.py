"""A step and its updates, computed from the games and rewards alone.

Rewards, credit, choices, rows, weights and losses by hand; scores and gradients by transformers'
own code. Advantages are the algorithm's, whose formulas tests/algorithms/ checks.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from tests.helpers.talks import turns_of
from tests.helpers.tiny import WORDS
from tests.training.whole_step import MAX_TOKENS, SEED, TEMPERATURE, Moment, Played, parts_of
from wordle_rl.algorithms.base import StepOutcomes
from wordle_rl.game.rules import State
from wordle_rl.policy.batch import minibatches
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.rollouts.talk import Rollout

# Algorithms by how they weigh tokens: all alike, each rollout alike, or as rewards are summed.
TOKEN_MEAN = ("dapo", "ppo", "sft", "distill", "opd", "cispo", "clipcov")
SEQUENCE_MEAN = ("grpo", "gspo", "gdpo", "turnsums", "adaptiveentropy")
IMITATORS = ("sft", "distill", "expertiteration")


@dataclass
class Row:
    """One sequence of a rollout. All lists are as long as its ids."""

    rollout: int
    ids: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    learnt: list[bool] = field(default_factory=list)  # in an answer that is no slip
    sampler: list[float] = field(default_factory=list)
    place: list[int] = field(default_factory=list)  # of a token in its answer, -1 in a prompt
    # By token of an answer: what it was drawn from, and how often each target is learnt instead.
    choices: dict[int, list[int]] = field(default_factory=dict)
    targets: dict[int, Counter[int]] = field(default_factory=dict)
    astray: set[int] = field(default_factory=set)

    @property
    def drawn(self) -> np.ndarray:
        """[T] the tokens that weights and advantages count."""
        forced = [len(self.choices.get(t, (1, 2))) == 1 for t in range(len(self.ids))]
        return np.array(self.learnt) & ~np.array(forced)


def rows_of(rollouts: list[Rollout]) -> list[Row]:
    rows: list[Row] = []
    for number, rollout in enumerate(rollouts):
        for k, turn in enumerate(turns_of(rollout.talks)):
            if turn.fresh or k == 0:
                rows.append(Row(number))
            row, prompt, answer = rows[-1], turn.prompt_ids, turn
            row.ids += prompt + answer.ids
            row.turn += [k] * (len(prompt) + len(answer.ids))
            row.learnt += [False] * len(prompt) + [turn.trained] * len(answer.ids)
            row.sampler += [0.0] * len(prompt) + answer.logprobs
            row.place += [-1] * len(prompt) + [*range(len(answer.ids))]
    return rows


def read(moment: Moment, row: Row) -> dict[str, torch.Tensor]:
    """Of each token [T], with gradient: its log-probability, and entropy and value before it.

    allowed: log-probability that a draw without the grammar is one of its choices.
    """
    ids = torch.tensor([row.ids])
    out = moment.model(input_ids=ids, output_hidden_states=True)
    logps = (out.logits[0, :-1].double() / TEMPERATURE).log_softmax(-1)
    now = logps.gather(-1, ids[0, 1:, None])[:, 0]
    entropy, allowed = -(logps.exp() * logps).sum(-1), torch.zeros(len(now), dtype=torch.float64)
    for t, choices in row.choices.items():
        options = logps[t - 1, choices]
        allowed = put(allowed, t - 1, options.logsumexp(0))
        shares = options.log_softmax(0)
        now = put(now, t - 1, shares[choices.index(row.ids[t])])
        entropy = put(entropy, t - 1, -(shares.exp() * shares).sum())
    for t, counts in row.targets.items():
        shares = torch.tensor([*counts.values()]).double()
        now = put(now, t - 1, logps[t - 1, [*counts]] @ shares / max(float(shares.sum()), 1.0))
    parts = {"now": now, "entropy": entropy, "allowed": allowed}
    if moment.head is not None:
        parts["values"] = (out.hidden_states[-1][0, :-1] @ moment.head[0] + moment.head[1]).double()
    return {name: torch.cat([torch.zeros(1), values]) for name, values in parts.items()}


def put(values: Tensor, place: int, value: Tensor) -> Tensor:
    return values.index_put((torch.tensor(place),), value)


@torch.no_grad()
def read_all(moment: Moment, rows: list[Row], name: str) -> list[np.ndarray]:
    return [read(moment, row)[name].numpy() for row in rows]


# -- what a grammar leaves to draw, and what a lesson gives to learn: by trying every word ---------


def marks(guess: str, secret: str) -> str:
    """g, y or x for each letter, the slow way."""
    codes = ["g" if a == b else "x" for a, b in zip(guess, secret, strict=True)]
    rest = Counter(b for a, b in zip(guess, secret, strict=True) if a != b)
    for place, letter in enumerate(guess):
        if codes[place] == "x" and rest[letter]:
            codes[place], rest[letter] = "y", rest[letter] - 1
    return "".join(codes)


def fit_words(words: tuple[str, ...], state: State, secret: str) -> list[str]:
    """The words that all guesses so far leave, or all of them if none is left."""
    guesses = [clue.guess for clue in state.clues]
    matches = [word for word in words if all(marks(g, word) == marks(g, secret) for g in guesses)]
    return matches or [*words]


def next_tokens(answers: list[list[int]], begin: list[int]) -> Counter[int]:
    """The token after this beginning, of the answers that have it."""
    n = len(begin)
    return Counter(ids[n] for ids in answers if ids[:n] == begin and len(ids) > n)


def constrain(row: Row, rollout: Rollout, grammar: str, encode: Callable[[str], list[int]]) -> None:
    """Say what each token of a model's answer was drawn from."""
    for t, place in enumerate(row.place):
        if place >= 0:
            state, vocabulary = rollout.game.turns[row.turn[t]].state, WORDS.allowed
            clues = grammar == "clues"
            words = fit_words(vocabulary, state, rollout.game.secret) if clues else vocabulary
            counts = next_tokens([encode(word) for word in words], row.ids[t - place : t])
            row.choices[t] = sorted(counts)


def teach(row: Row, rollout: Rollout, from_model: bool, encode: Callable[[str], list[int]]) -> None:
    """Say what each token of an answer is taught: what fits, or else any answer, any word."""
    for t, place in enumerate(row.place):
        if row.learnt[t]:
            state = rollout.game.turns[row.turn[t]].state
            fits = fit_words(WORDS.answers, state, rollout.game.secret)
            pools = (fits, WORDS.answers, WORDS.allowed)
            begin = row.ids[t - place : t]
            counters = [next_tokens([encode(word) for word in pool], begin) for pool in pools]
            row.targets[t] = next((counter for counter in counters if counter), Counter())
            row.astray |= {t} if from_model and not counters[0] else set()


class Oracle:
    """Advantages of a step, and what each update is fed and its loss, from its games alone."""

    def __init__(self, outcome: Played) -> None:
        self.algorithm, self.name = outcome.algorithm, type(outcome.algorithm).__name__.lower()
        self.by_turn = outcome.fields.get("credit", "game") == "turn"
        self.discount = outcome.fields["discount"] if self.by_turn else 1.0
        self.played, self.unpaid = outcome, outcome.unpaid
        self.rollouts = outcome.result.rollouts
        self.groups = np.array([r.group for r in self.rollouts])
        self.rows = rows_of(self.rollouts)
        self._say_what_could_be_drawn()
        start, player = outcome.moments[0], outcome.player
        self.old = read_all(start, self.rows, "now")
        self.ref = read_all(outcome.reference, self.rows, "now")
        self.as_played = read_all(player, self.rows, "now")
        self.values = None if start.head is None else read_all(start, self.rows, "values")
        self.met: set[str] = set()  # cases of the losses
        self.seen: dict[str, list[Tensor]] = {}  # metrics of the last loss, of each token
        parts = [self._parts(i) for i in range(len(self.rollouts))]
        returns = [self._returns(sum(p.values())) for p in parts]
        outcomes = StepOutcomes(
            groups=self.groups,
            returns=returns,
            won=np.array([rollout.game.won for rollout in self.rollouts]),
            complete=[
                np.array([turn.reason != "truncated" for turn in rollout.game.turns])
                for rollout in self.rollouts
            ],
            values=None if start.head is None else self._before_answers(player, returns),
            by_turn=self.by_turn,
            discount=self.discount,
            parts=[{name: self._returns(row) for name, row in p.items()} for p in parts],
        )
        self.found = self.algorithm.advantages(outcomes)
        self.letters = outcome.letters
        self.held_back = self._held_back()

    def _say_what_could_be_drawn(self) -> None:
        """Choices of a grammar, targets of a lesson, and which answers are learnt."""
        grammar, lesson = self.played.fields.get("grammar"), self.played.fields.get("teacher")
        for row in self.rows:
            rollout = self.rollouts[row.rollout]
            share = lesson.own_share if lesson and lesson.guessable else float(not lesson)
            from_model = int((rollout.group + 1) * share) > int(rollout.group * share)
            if from_model:
                row.learnt = [place >= 0 for place in row.place]
            if lesson and lesson.distribution:
                teach(row, rollout, from_model, self.played.encode)
            elif grammar and not lesson:
                constrain(row, rollout, grammar, self.played.encode)

    def _parts(self, i: int) -> dict[str, np.ndarray]:
        """[K] by name: what each part of the reward pays at each turn, penalties included."""
        rollout = self.rollouts[i]
        turns, parts = [*zip(rollout.game.turns, turns_of(rollout.talks), strict=True)], {}
        paid = rollout.game.secret not in self.unpaid
        for name, part in parts_of().items():
            parts[name] = np.array([float(part(turn)) * paid for turn, _ in turns])
        if getattr(self.algorithm, "kl", "") == "reward":
            charge = np.zeros(len(turns))
            for row, old, ref in zip(self.rows, self.as_played, self.ref, strict=True):
                if row.rollout == i:
                    np.add.at(charge, np.array(row.turn), ((ref - old) * row.drawn))
            parts["kl"] = self.algorithm.beta * charge
        if self.name == "dapo" and self.algorithm.overlong == "punish":
            lengths, buffer = np.array([len(tokens.ids) for _, tokens in turns]), 0.2 * MAX_TOKENS
            parts["overlong"] = -((lengths - (MAX_TOKENS - buffer)) / buffer).clip(0.0, 1.0)
        return parts

    def _returns(self, rewards: np.ndarray) -> np.ndarray:
        """[K] reward from each turn on, or of the whole game."""
        turns = range(len(rewards))
        if not self.by_turn:
            return np.array([rewards.sum() for _ in turns])
        d = self.discount
        return np.array([sum(d ** (n - k) * rewards[n] for n in turns[k:]) for k in turns])

    def _before_answers(self, player: Moment, returns: list[np.ndarray]) -> list[np.ndarray]:
        """What the head says before the first drawn token of each answer.

        An answer without one is worth what its turn earns and the value of the next turn.
        """
        estimates = [np.full(len(game_returns) + 1, np.nan) for game_returns in returns]
        for row, values in zip(self.rows, read_all(player, self.rows, "values"), strict=True):
            for t in np.flatnonzero(row.drawn)[::-1]:
                estimates[row.rollout][row.turn[t]] = values[t]
        for values, to_go in zip(estimates, returns, strict=True):
            values[-1] = 0.0
            for k in np.flatnonzero(np.isnan(values))[::-1]:
                next_return = to_go[k + 1] if k + 1 < len(to_go) else 0.0
                values[k] = to_go[k] - self.discount * next_return + self.discount * values[k + 1]
                self.met.add("a forced answer")
        return [values[:-1] for values in estimates]

    def _held_back(self) -> list[np.ndarray]:
        """[T] of each row: which tokens get no gradient from advantages, by clip_cov."""
        masks = [np.zeros(len(row.ids), bool) for row in self.rows]
        if self.name != "clipcov":
            return masks
        places = [(n, t) for n, row in enumerate(self.rows) for t in np.flatnonzero(row.drawn)]
        gains = np.array([self._advantage(self.rows[n])[t] for n, t in places])
        logs = np.array([self.rows[n].sampler[t] for n, t in places])
        products = np.array(
            [(p - logs.mean()) * (a - gains.mean()) for p, a in zip(logs, gains, strict=True)]
        )
        low, high = self.algorithm.cov_low, self.algorithm.cov_high
        candidates = [m for m, product in enumerate(products) if low <= product <= high]
        count = min(max(int(self.algorithm.share * len(places)), 1), len(candidates))
        draw = generator(Purpose.HELD_BACK, seed=SEED, step=0)
        for m in draw.choice(candidates, count, replace=False):
            masks[places[m][0]][places[m][1]] = True
        self.met |= {"some of them"} if 0 < count < len(candidates) else set()
        return masks

    def advantage(self, row: Row) -> np.ndarray:
        """[T]"""
        values = self._advantage(row)
        mask = next(a for a, b in zip(self.held_back, self.rows, strict=True) if b is row)
        return np.where(mask, 0.0, values)

    def _advantage(self, row: Row) -> np.ndarray:
        """[T] before any token is held back."""
        values = np.where(row.drawn, self.found.per_turn[row.rollout][np.array(row.turn)], 0.0)
        if self.letters:
            for t in np.flatnonzero(row.drawn):
                values[t] += (bonus := self.letters[row.rollout][row.turn[t]][row.place[t]])
                self.met |= {"a letter counts"} if bonus else set()
        if row.targets:
            self.met |= {"astray"} if row.astray else set()
            for t in np.flatnonzero(row.drawn):
                values[t] *= bool(row.targets[t]) * (0.1 if t in row.astray else 1.0)
        return values

    @property
    def teaches(self) -> np.ndarray:
        """[R] whether any token of a rollout has an advantage."""
        mask = np.zeros(len(self.rollouts), bool)
        for row in self.rows:
            mask[row.rollout] |= bool(self._advantage(row).any())
        return mask

    @property
    def leaves_out(self) -> bool:
        """Whether rollouts without any advantage have no gradient."""
        algorithm = self.algorithm
        if self.name in ("dpo", "expertiteration"):
            return True
        if self.name in ("sft", "distill", "ppo", "opd", "adaptiveentropy"):
            return False
        for_all = algorithm.entropy or algorithm.semantic
        return not for_all and (not algorithm.beta or algorithm.kl == "reward")

    def weights(self, members: np.ndarray) -> np.ndarray:
        """[R] of each drawn token of the rollouts of one update."""
        tokens, weights = np.zeros(len(self.rollouts), int), np.zeros(len(self.rollouts))
        for row in self.rows:
            tokens[row.rollout] += row.drawn.sum()
        used, units = self.teaches & np.isin(np.arange(len(tokens)), members), self.units
        for i in members:
            if self.name in TOKEN_MEAN:
                weights[i] = 1 / tokens[members].sum()
            elif self.name in SEQUENCE_MEAN:
                weights[i] = 1 / len(members) / max(tokens[i], 1)
            elif self.name == "drgrpo":
                weights[i] = 1 / len(members) / self.algorithm.budget
            elif self.name == "expertiteration":
                weights[i] = used[i] / max(tokens[used].sum(), 1)
            elif self.name == "dpo":
                pairs, count = len(set(units[used])), tokens[units == units[i]].sum()
                weights[i] = used[i] / max(pairs, 1) / count
            else:  # rloo, max_rl: a sum over tokens
                weights[i] = 1 / len(members)
        return weights

    @property
    def units(self) -> np.ndarray:
        return np.arange(len(self.rollouts)) if self.found.units is None else self.found.units

    def updates(self) -> Iterator[list[tuple[Row, dict[str, np.ndarray]]]]:
        """The rows of each update, and what it is fed: fields of the Batch at drawn tokens."""
        with_forced = getattr(self.algorithm, "semantic", 0.0) > 0
        scored = [any(row.learnt) if with_forced else row.drawn.any() for row in self.rows]
        rollouts = {row.rollout for row in self.rows if row.drawn.any()}
        for epoch in range(self.algorithm.epochs):
            for members in minibatches(
                self.groups, self.algorithm.minibatches, seed=SEED, step=0, epoch=epoch
            ):
                weights = self.weights(members)
                learners = {*members[self.teaches[members]]} if self.leaves_out else {*members}
                rows = [n for n, row in enumerate(self.rows) if row.rollout in learners & rollouts]
                if rows := [n for n in rows if scored[n]]:
                    yield [(self.rows[n], self._fields(n, weights)) for n in rows]

    def _fields(self, n: int, weights: np.ndarray) -> dict[str, np.ndarray]:
        row = self.rows[n]
        fields = {
            "ids": row.ids,
            "sampler_logprobs": row.sampler,
            "advantages": self.advantage(row),
            "weights": [weights[row.rollout]] * len(row.ids),
        }
        algorithm = self.algorithm
        scored = algorithm.needs.scores and not self.played.lagged
        if algorithm.epochs * algorithm.minibatches > 1 or scored:
            fields["old_logprobs"] = self.old[n]
        if algorithm.needs.reference:
            fields["ref_logprobs"] = self.ref[n]
        if self.values is not None:
            assert self.found.targets is not None
            fields["old_values"] = self.values[n]
            fields["targets"] = self.found.targets[row.rollout][np.array(row.turn)]
        return {name: np.asarray(values)[row.drawn] for name, values in fields.items()}

    def loss(self, moment: Moment, rows: list[tuple[Row, dict[str, np.ndarray]]]) -> torch.Tensor:
        """The loss of one update, with the gradient by the weights before it."""
        tokens, self.seen, parts = [], {}, []
        algorithm = self.algorithm
        semantic = getattr(algorithm, "semantic", 0.0)
        for row, fields in rows:
            scores = read(moment, row)
            terms = {name: values[row.drawn] for name, values in scores.items()}
            feed = {name: torch.from_numpy(values.astype(float)) for name, values in fields.items()}
            feed.setdefault("old_logprobs", terms["now"].detach())
            tokens.append(Tokens(rollout=row.rollout, **feed, **terms))
            self.note("surprise", -terms["now"])
            if semantic:
                weight = self.weights(self._members(rows))[row.rollout]
                scores = -scores["allowed"][np.array(row.learnt)]  # of forced tokens, too
                self.note("semantic", scores)
                parts.append(semantic * weight * scores.sum())
        if self.name == "dpo":
            return pairs_loss(algorithm.beta, tokens, self.units)
        if self.name in IMITATORS:
            return -torch.stack([(t.weights * t.advantages * t.now).sum() for t in tokens]).sum()
        for _, group in groupby(tokens, lambda item: item.rollout):
            parts += policy_gradient_loss(self, [*group])
        if self.values is not None:
            scale = float(np.concatenate(self.found.targets).std())
            parts += [
                algorithm.value_weight * value_loss(algorithm.value_clip, scale, t, self.met)
                for t in tokens
            ]
        return torch.stack(parts).sum()

    def note(self, name: str, values: Tensor) -> None:
        self.seen.setdefault(name, []).append(values.detach())

    def means(self) -> dict[str, float]:
        """The metrics of the last loss: sums over the tokens that have them, by drawn token."""
        count = sum(len(values) for values in self.seen["surprise"])
        return {name: float(torch.cat(parts).sum()) / count for name, parts in self.seen.items()}

    def _members(self, rows: list[tuple[Row, dict[str, np.ndarray]]]) -> np.ndarray:
        """The rollouts of the groups that an update has rows of."""
        return np.flatnonzero(np.isin(self.groups, [self.groups[row.rollout] for row, _ in rows]))

    def entropy_weight(self) -> float:
        """What the entropy bonus weighs in this step."""
        if self.name != "adaptiveentropy":
            return self.algorithm.entropy
        logprobs = np.concatenate([np.array(row.sampler)[row.drawn] for row in self.rows])
        return self.algorithm.entropy * max(0.0, 1 + logprobs.mean() / self.algorithm.target)


# -- losses as the papers write them: by cases, in float64, row by row ---------------------------
# `met` collects the cases that occurred, so that the test can ask for them.


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The drawn tokens [T] of one row. Its first four have a gradient."""

    now: Tensor  # log-probability
    entropy: Tensor
    allowed: Tensor
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


def policy_gradient_loss(oracle: Oracle, rows: list[Tokens]) -> list[Tensor]:
    """Of the rows of one rollout. GSPO-token (eq. 13 and 14) has one ratio for the rollout."""
    algorithm, met, name = oracle.algorithm, oracle.met, oracle.name
    shift = torch.cat([t.now - t.old_logprobs for t in rows])
    rollout_ratio = shift.mean().detach().exp()
    met |= {"several sequences"} if name == "gspo" and len(rows) > 1 else set()
    losses = []
    for t in rows:
        gain = t.advantages
        if name == "opd":
            gain = t.ref_logprobs - t.old_logprobs + algorithm.reward_weight * gain
        if algorithm.entropy:
            oracle.note("entropy", t.entropy)
        drift = (t.now - t.now.detach()).exp()  # 1, with the slope of a ratio
        ratio = rollout_ratio * drift if name == "gspo" else (t.now - t.old_logprobs).exp()
        loss = cispo_loss(oracle, t) if name == "cispo" else clip_loss(oracle, ratio, gain)
        if algorithm.cap is not None:
            importance = (t.old_logprobs - t.sampler_logprobs).exp()
            capped = importance > algorithm.cap
            met |= {"importance capped"} if capped.any() else set()
            met |= {"importance below 1"} if (importance < 1).any() else set()
            loss = loss * torch.where(capped, algorithm.cap, importance)
            oracle.note("importance", torch.where(capped, algorithm.cap, importance))
        if algorithm.beta and algorithm.kl == "loss":
            ratio_of_reference = (t.ref_logprobs - t.now).exp()
            divergence = ratio_of_reference - 1 - ratio_of_reference.log()
            oracle.note("kl", divergence)
            loss = loss + algorithm.beta * divergence
        losses.append((t.weights * (loss - oracle.entropy_weight() * t.entropy)).sum())
    return losses


def clip_loss(oracle: Oracle, ratio: Tensor, gain: Tensor) -> Tensor:
    """PPO's: where the ratio has gone too far in the direction of the advantage, no gradient."""
    high, low = 1 + oracle.algorithm.clip_high, 1 - oracle.algorithm.clip_low
    above, below = (gain > 0) & (ratio > high), (gain < 0) & (ratio < low)
    oracle.met |= {name for name, mask in (("above", above), ("below", below)) if mask.any()}
    oracle.note("clipped", (above | below).double())
    return -torch.where(below, low, torch.where(above, high, ratio)) * gain


def cispo_loss(oracle: Oracle, t: Tokens) -> Tensor:
    """MiniMax-M1's (eq. 4): too large a ratio is another weight, and every token has a gradient."""
    ratio, high = (t.now - t.old_logprobs).exp().detach(), 1 + oracle.algorithm.clip_high
    oracle.met |= {"above"} if (ratio > high).any() else set()
    oracle.note("clipped", (ratio > high).double())
    return -torch.where(ratio > high, high, ratio) * t.advantages * t.now


def value_loss(clip: float, scale: float, t: Tokens, met: set[str]) -> Tensor:
    """Half the squared error. A value that came nearer by more than it may counts as held back."""
    assert t.values is not None and t.old_values is not None
    reach = clip * scale
    limit = t.old_values + reach * (t.values - t.old_values).sign()
    too_far = (t.values - t.old_values).abs() > reach
    nearer = (t.values - t.targets).abs() < (limit - t.targets).abs()
    met |= {"value held"} if (too_far & nearer).any() else set()
    met |= {"value too far and worse"} if (too_far & ~nearer).any() else set()
    errors = (torch.where(too_far & nearer, limit, t.values) - t.targets) / scale
    return (t.weights * errors.square()).sum() / 2


def pairs_loss(beta: float, rows: list[Tokens], units: np.ndarray) -> Tensor:
    """The mean over pairs of -log sigmoid of how much more the better one gained: DPO, eq. 7."""
    margins: dict[int, Tensor] = {}
    for t in rows:
        gain = (t.advantages * (t.now - t.ref_logprobs)).sum()  # the worse one has -1
        unit = int(units[t.rollout])
        margins[unit] = margins.get(unit, torch.zeros(())) + beta * gain
    return (1 + (-torch.stack([*margins.values()])).exp()).log().mean()
