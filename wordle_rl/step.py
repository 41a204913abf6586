"""One training step: play, judge, weigh, update. The same for every algorithm and backend.

Which secrets a step plays is a pure function of (seed, step), so that a resumed run plays on as
if it had never stopped. Axes: G groups, N rollouts of a group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.algorithms.credit import turn_advantages
from wordle_rl.chat import Chat
from wordle_rl.forms import form_of
from wordle_rl.game import Game, PlayedTurn, Rules, State
from wordle_rl.history import History
from wordle_rl.policy import Policy
from wordle_rl.processes import share
from wordle_rl.prompts import PromptStyle
from wordle_rl.records import Batch, Rollout, Sequence, pad, sequences
from wordle_rl.rewards.scoring import GameReward, RewardSet
from wordle_rl.rollouts.scene import Scene, whole_games
from wordle_rl.sampling import Sampling
from wordle_rl.teaching import Lesson, Targets, TokenTeacher, joined
from wordle_rl.words import WordLists


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Everything a step needs besides the policy; none of it changes while training."""

    words: WordLists
    rules: Rules
    style: PromptStyle
    sampling: Sampling
    rewards: RewardSet
    algorithm: Algorithm
    teacher: Lesson | None  # plays in the policy's place when the algorithm imitates
    secrets: tuple[str, ...]  # that training games may have
    groups: int  # secrets per step
    num_generations: int  # rollouts per group
    play: Callable[[Scene], list[Rollout]] = whole_games  # of a kind in wordle_rl.rollouts
    form: str = "conversation"  # of the prompts, see wordle_rl.forms
    history: History | None = None  # where training games begin; None for the empty board
    credit: str = "game"  # game: one advantage per game; turn: one per turn
    discount: float = 1.0  # of later turns, with credit by turn
    seed: int


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step played and how it went, in all processes together."""

    rollouts: list[Rollout]
    rewards: list[GameReward]
    advantages: list[np.ndarray]  # [rollouts] of the turns [K] of each rollout
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
        groups = {r.group for r in played}
        equal = groups - {r.group for r, a in zip(played, advantages, strict=True) if np.any(a)}
        mine = share(lab.groups, policy.processes)
        batch = build_batch(played, advantages, equal, chat, lab, mine)
    idle = len(equal) / len(groups)
    metrics = {
        **game_metrics(whole(played), [turn for r in played for turn in r.game.turns]),
        **reward_metrics(rewards),
        "groups/played": float(len(groups)),
        "groups/zero_spread": idle,
        "groups/skipped": idle if lab.algorithm.skips_equal_groups else 0.0,
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
    totals = np.array([r.total for r in rewards]).reshape(-1, lab.num_generations)
    of_game = lab.algorithm.advantages(totals).ravel()
    return [np.full(len(p.game.turns), a) for p, a in zip(played, of_game, strict=True)]


def collect(
    policy: Policy, chat: Chat, lab: Lab, step: int, check: Callable[[], None] | None = None
) -> list[Rollout]:
    """The rollouts of this process's secrets of a step, group by group."""
    mine = share(lab.groups, policy.processes)
    chosen = step_secrets(lab.secrets, seed=lab.seed, step=step, groups=lab.groups)
    secrets, turns = chosen[mine.start : mine.stop], lab.rules.max_turns
    if lab.history is None:
        starts = [State(max_turns=turns)] * len(secrets)
    else:
        starts = lab.history.states(secrets, mine, seed=lab.seed, step=step, max_turns=turns)
    return lab.play(
        Scene(
            policy=policy, chat=chat, lab=lab, step=step, places=mine, secrets=secrets,
            starts=starts, check=check,
        )
    )  # fmt: skip


def build_batch(
    played: list[Rollout],
    advantages: list[np.ndarray],
    equal: Collection[int],
    chat: Chat,
    lab: Lab,
    mine: range,
) -> Batch | None:
    """Sequences of the secrets `mine` with their weights; None when the step teaches nothing.

    equal: groups without spread. Weights are given on the whole step, to all sequences of a rollout
    alike, before those groups and what other processes play are left out, so leaving them out
    changes no gradient.
    """
    of_rollouts = [sequences(r, i) for i, r in enumerate(played)]
    lengths = np.array([sum(sum(s.trained) for s in parts) for parts in of_rollouts])
    weights = lab.algorithm.weights(lengths)
    skip = lab.algorithm.skips_equal_groups
    kept = [
        (s, w)
        for parts, w in zip(of_rollouts, weights, strict=True)
        for s in parts
        if any(s.trained) and not (skip and played[s.rollout].group in equal)
    ]
    if not kept:
        return None
    kept = [(s, w) for s, w in kept if played[s.rollout].group % lab.groups in mine]

    def marked(values: Iterable[float], sequence: Sequence) -> list[float]:
        return [float(v) if t else 0.0 for v, t in zip(values, sequence.trained, strict=True)]

    values = {
        "advantages": [marked(advantages[s.rollout][s.turns], s) for s, _ in kept],
        "weights": [marked(repeat(w, len(s.ids)), s) for s, w in kept],
    }
    batch = pad([s for s, _ in kept], values, chat.tokenizer.pad_id)
    if lab.teacher is None or not lab.teacher.distribution:
        return batch
    teacher = TokenTeacher(lab.teacher.player, form_of(lab.form, chat, lab.style))
    targets = [sequence_targets(played[s.rollout], s, teacher) for s, _ in kept]
    return replace(batch, targets=targets)


def sequence_targets(rollout: Rollout, sequence: Sequence, teacher: TokenTeacher) -> Targets:
    """The teacher's distributions at the trained places of a sequence of a rollout."""
    parts, place = [], 0
    for number in range(sequence.turns[0], sequence.turns[-1] + 1):
        turn, state = rollout.turns[number], rollout.game.turns[number].state
        place += len(turn.prompt_ids)
        if turn.trained:
            parts.append(teacher.targets(state, turn.completion.ids, place))
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


def whole(played: Many[Rollout]) -> list[Game]:
    """The games of some rollouts; one that guesses were candidates in counts once."""
    games = [rollout.game if rollout.within is None else rollout.within for rollout in played]
    return list({id(game): game for game in games}.values())


def game_metrics(games: Many[Game], turns: Many[PlayedTurn]) -> dict[str, float]:
    """How a step's games went, and all answers that were drawn in them."""
    wins = [game for game in games if game.won]
    begun = [game for game in games if game.turns]
    return {
        "train/games": float(len(games)),
        "train/wins": float(len(wins)),
        "train/win_rate": len(wins) / len(games),
        "train/earlier_guesses": float(np.mean([len(g.turns[0].state.clues) for g in begun])),
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
