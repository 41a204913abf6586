"""One training step: play, judge, weigh, update. The same for every algorithm and backend.

Which secrets a step plays is a pure function of (seed, step), but for those that a curriculum
replays, so that a resumed run plays on as if it had never stopped. Axes: G groups, N rollouts of a
group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.algorithms.credit import turn_advantages
from wordle_rl.chat import Chat
from wordle_rl.game import Game, Rules
from wordle_rl.policy import Policy
from wordle_rl.processes import share
from wordle_rl.prompts import PromptStyle
from wordle_rl.records import Batch, Rollout, Sequence, conversation, pad
from wordle_rl.rewards.scoring import GameReward, RewardSet
from wordle_rl.rollout import PolicyActor, ScriptedActor, play, rollouts, scripted_turns
from wordle_rl.sampling import Sampling
from wordle_rl.teaching import Lesson, Targets, TokenTeacher, joined
from wordle_rl.words import WordLists


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Everything a step needs besides the policy; a curriculum alone changes it while training."""

    words: WordLists
    rules: Rules
    style: PromptStyle
    sampling: Sampling
    rewards: RewardSet
    algorithm: Algorithm
    teacher: Lesson | None  # plays in the policy's place when the algorithm imitates
    secrets: tuple[str, ...]  # that training games may have
    replayed: tuple[str, ...] = ()  # of them, in the place of those due in the last groups
    groups: int  # per step
    num_generations: int  # games per group
    credit: str = "game"  # game: one advantage per game; turn: one per turn
    discount: float = 1.0  # of later turns, with credit by turn
    seed: int


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step played and how it went, in all processes together."""

    rollouts: list[Rollout]
    rewards: list[GameReward]
    advantages: list[np.ndarray]  # [G * N] of the turns [K] of each rollout
    metrics: dict[str, float]


def step_secrets(secrets: Many[str], *, seed: int, step: int, groups: int) -> list[str]:
    """The secrets of a step's groups: walks through one shuffle of all secrets after the other."""
    out = []
    for place in range(step * groups, (step + 1) * groups):
        epoch, index = divmod(place, len(secrets))
        order = np.random.default_rng([seed, epoch]).permutation(len(secrets))
        out.append(secrets[order[index]])
    return out


def train_step(
    policy: Policy, chat: Chat, lab: Lab, step: int, check: Callable[[], None] | None = None
) -> StepResult:
    """Play the games of a step and improve the policy on them.

    Each process plays and trains its own groups; advantages, weights and metrics are those of the
    whole step. check: raises to give the step up, called only while the policy is as it was.
    """
    own = collect(policy, chat, lab, step, check)
    with policy.timers("reward"):
        own_rewards = [lab.rewards.score(r.game) for r in own]
    parts = policy.processes.gather((own, own_rewards))
    played = [rollout for part, _ in parts for rollout in part]
    rewards = [reward for _, part in parts for reward in part]
    with policy.timers("reward"):
        advantages = judge(played, rewards, lab)
        by_group = np.array([np.abs(a).max(initial=0.0) for a in advantages]).reshape(
            lab.groups, -1
        )
        equal = by_group.max(axis=1) == 0.0
        mine = share(lab.groups, policy.processes)
        batch = build_batch(played, advantages, equal, chat, lab, mine)
    metrics = {
        **game_metrics([r.game for r in played]),
        **reward_metrics(rewards),
        "groups/zero_spread": float(equal.mean()),
        "groups/skipped": float(equal.mean()) if lab.algorithm.skips_equal_groups else 0.0,
        "tokens/sampled": float(sum(len(t.completion.ids) for r in played for t in r.turns)),
    }
    if check is not None:
        check()
    if batch is not None:
        metrics |= update(policy, lab.algorithm, batch)
    else:
        metrics["update/empty"] = 1.0
    return StepResult(rollouts=played, rewards=rewards, advantages=advantages, metrics=metrics)


def judge(played: list[Rollout], rewards: list[GameReward], lab: Lab) -> list[np.ndarray]:
    """The advantage of each turn [K] of each rollout."""
    if lab.credit == "turn" and lab.teacher is None:
        to_go = [
            lab.rewards.to_go(p.game, r, lab.discount) for p, r in zip(played, rewards, strict=True)
        ]
        return turn_advantages(
            to_go, num_generations=lab.num_generations, scale=lab.algorithm.scale
        )
    totals = np.array([r.total for r in rewards]).reshape(lab.groups, lab.num_generations)
    of_game = lab.algorithm.advantages(totals).ravel()
    return [np.full(len(p.game.turns), a) for p, a in zip(played, of_game, strict=True)]


def collect(
    policy: Policy, chat: Chat, lab: Lab, step: int, check: Callable[[], None] | None = None
) -> list[Rollout]:
    """The games of this process's groups of a step, group by group."""
    mine = share(lab.groups, policy.processes)
    due = step_secrets(lab.secrets, seed=lab.seed, step=step, groups=lab.groups)
    chosen = [*due[: lab.groups - len(lab.replayed)], *lab.replayed]
    size = lab.num_generations
    secrets = [chosen[group] for group in mine for _ in range(size)]
    first = mine.start * size
    if lab.teacher is not None:
        with policy.timers("teacher"):
            scripted = ScriptedActor(
                player=lab.teacher.player, seed=lab.seed, step=step, first_rollout=first,
                mistakes=lab.teacher.mistakes, slips=lab.teacher.slips,
            )  # fmt: skip
            games = play(scripted, secrets, words=lab.words, rules=lab.rules, check=check)
            turns = [
                scripted_turns(game, chat, lab.style, slipped)
                for game, slipped in zip(games, scripted.slipped, strict=True)
            ]
        return rollouts(games, turns, size, first_group=mine.start)
    actor = PolicyActor(
        engine=policy.engine(), chat=chat, style=lab.style, sampling=lab.sampling,
        seed=lab.seed, step=step, first_rollout=first,
    )  # fmt: skip
    with policy.timers("game"):
        games = play(actor, secrets, words=lab.words, rules=lab.rules, check=check)
    return rollouts(games, actor.turns, size, first_group=mine.start)


def build_batch(
    played: list[Rollout],
    advantages: list[np.ndarray],
    equal: np.ndarray,
    chat: Chat,
    lab: Lab,
    mine: range,
) -> Batch | None:
    """Sequences of the groups `mine` with their weights; None when the step teaches nothing.

    Weights are given on the whole step before groups without spread, and those of other processes,
    are left out, so leaving them out changes no gradient.
    """
    sequences = [conversation(r, i) for i, r in enumerate(played)]
    lengths = np.array([sum(s.trained) for s in sequences])
    weights = lab.algorithm.weights(lengths)
    skip = lab.algorithm.skips_equal_groups
    kept = [
        (s, w)
        for s, w in zip(sequences, weights, strict=True)
        if any(s.trained) and not (skip and equal[played[s.rollout].group])
    ]
    if not kept:
        return None
    kept = [(s, w) for s, w in kept if played[s.rollout].group in mine]

    def marked(values: Iterable[float], sequence: Sequence) -> list[float]:
        return [float(v) if t else 0.0 for v, t in zip(values, sequence.trained, strict=True)]

    values = {
        "advantages": [marked(advantages[s.rollout][s.turns], s) for s, _ in kept],
        "weights": [marked(repeat(w, len(s.ids)), s) for s, w in kept],
    }
    batch = pad([s for s, _ in kept], values, chat.tokenizer.pad_id)
    if lab.teacher is None or not lab.teacher.distribution:
        return batch
    teacher = TokenTeacher(lab.teacher.player, chat)
    targets = [sequence_targets(played[s.rollout], teacher) for s, _ in kept]
    return replace(batch, targets=targets)


def sequence_targets(rollout: Rollout, teacher: TokenTeacher) -> Targets:
    """The teacher's distributions at the trained places of a game's conversation."""
    parts, place = [], 0
    for turn, played in zip(rollout.turns, rollout.game.turns, strict=True):
        place += len(turn.prompt_ids)
        if turn.trained:
            parts.append(teacher.targets(played.state, turn.completion.ids, place))
        place += len(turn.completion.ids)
    return joined(parts)


def update(policy: Policy, algorithm: Algorithm, batch: Batch) -> dict[str, float]:
    """All optimiser steps on one batch; metrics are those of the last one, except `skipped`."""
    if algorithm.updates > 1:
        batch = replace(batch, old_logprobs=policy.score(batch))
    if algorithm.needs_reference:
        batch = replace(batch, ref_logprobs=policy.score(batch, reference=True))
    metrics: dict[str, float] = {}
    skipped = 0.0
    for _ in range(algorithm.updates):
        metrics = policy.update(batch, algorithm)
        skipped += metrics["update/skipped"]
    metrics["update/skipped"] = skipped
    return metrics


def game_metrics(games: Many[Game]) -> dict[str, float]:
    """How a step's games went."""
    turns = [turn for game in games for turn in game.turns]
    wins = [game for game in games if game.won]
    return {
        "train/games": float(len(games)),
        "train/wins": float(len(wins)),
        "train/win_rate": len(wins) / len(games),
        "train/guesses_won": float(np.mean([g.state.turn for g in wins])) if wins else np.nan,
        "train/format": sum(t.guess is not None for t in turns) / len(turns),
        "train/non_words": sum(t.kind == "not_a_word" for t in turns) / len(turns),
        "train/repeats": sum(t.repeat for t in turns) / len(turns),
    }


def reward_metrics(rewards: Many[GameReward]) -> dict[str, float]:
    """Mean reward of a game, whole and by component, and its spread."""
    totals = np.array([r.total for r in rewards])
    parts: defaultdict[str, float] = defaultdict(float)
    for reward in rewards:
        for turn in reward.turns:
            for name, value in turn.items():
                parts[name] += value
    means = {f"reward/{name}": value / len(rewards) for name, value in parts.items()}
    return {"reward/mean": float(totals.mean()), "reward/std": float(totals.std()), **means}
