"""One training step: play, score, weigh, update. The same for every algorithm and backend.

The secrets of a step depend only on the seed, the step and what a curriculum replays. So a resumed
run plays the same games as an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from wordle_rl.algorithms.base import Advantages
from wordle_rl.game.rules import State
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.given import GivenState, GivenStates
from wordle_rl.rollouts.kinds import RolloutTask, play_task
from wordle_rl.rollouts.settings import Recipe, Step
from wordle_rl.rollouts.talk import Rollout, games_of
from wordle_rl.runs.processes import share
from wordle_rl.training.advantages import (
    groups_without_spread,
    score_rollouts,
    share_of_idle_turns,
    step_advantages,
)
from wordle_rl.training.letters import letter_advantages
from wordle_rl.training.metrics import (
    answer_metrics,
    game_metrics,
    group_metrics,
    reward_metrics,
    token_metrics,
)
from wordle_rl.training.update import run_updates

_ROUNDING = 1e-9  # 0.29 x 100 is below 29
T = TypeVar("T")  # a secret, or the place of a row


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The rollouts of a step, from all processes, and how they went."""

    rollouts: list[Rollout]
    advantages: list[np.ndarray]  # for each rollout [K], one per turn
    metrics: dict[str, float]

    @property
    def rewards(self) -> list[GameReward]:
        return [rollout.reward for rollout in self.rollouts]


def step_secrets(secrets: Sequence[str], *, seed: int, step: int, groups: int) -> list[str]:
    """The secrets of a step's groups. Each epoch goes once through a new shuffle of all secrets."""
    return planned(secrets, seed, range(step * groups, (step + 1) * groups))


def planned(secrets: Sequence[T], seed: int, places: range) -> list[T]:
    """What a run plays at these places of its whole sequence of groups."""
    return _shuffled(secrets, places, lambda epoch: np.random.default_rng([seed, epoch]))


def _planned_allowed(secrets: Sequence[str], seed: int, places: range) -> list[str]:
    """As _planned, with other shuffles."""

    def shuffle(epoch: int) -> np.random.Generator:
        return generator(Purpose.ALLOWED_SECRETS, seed=seed, number=epoch)

    return _shuffled(secrets, places, shuffle)


def _shuffled(
    secrets: Sequence[T], places: range, shuffle: Callable[[int], np.random.Generator]
) -> list[T]:
    """The secrets at some places of a sequence of epochs. shuffle: the generator of an epoch."""
    out, orders = [], {}
    for place in places:
        epoch, index = divmod(place, len(secrets))
        if epoch not in orders:
            orders[epoch] = shuffle(epoch).permutation(len(secrets))
        out.append(secrets[orders[epoch][index]])
    return out


def spare_secrets(secrets: Sequence[T], *, seed: int, step: int, places: range) -> list[T]:
    """Secrets for a step's replacement groups, taken from a separate shuffle."""
    order = generator(Purpose.SPARE_SECRETS, seed=seed, step=step).permutation(len(secrets))
    return [secrets[int(order[place % len(secrets)])] for place in places]


def group_secrets(recipe: Recipe, step: int, numbers: range) -> list[str]:
    """The secrets of a step's groups with these numbers. All are planned, or all are spare."""
    groups, seed = recipe.rollout.groups, recipe.seed
    if numbers.start < groups:
        due = mix_secrets(
            range(step * groups, (step + 1) * groups),
            recipe.allowed_share,
            lambda places: planned(recipe.secrets, seed, places),
            lambda places: _planned_allowed(recipe.allowed_secrets, seed, places),
        )
        everything = [*due[: groups - len(recipe.replayed)], *recipe.replayed]
        return everything[numbers.start : numbers.stop]

    def spare(secrets: Sequence[str]) -> Callable[[range], list[str]]:
        return lambda places: spare_secrets(secrets, seed=seed, step=step, places=places)

    places = range(numbers.start - groups, numbers.stop - groups)
    # The phase differs from step to step, because most steps have too few replacements for a share.
    return mix_secrets(
        places, recipe.allowed_share, spare(recipe.secrets), spare(recipe.allowed_secrets), step
    )


def group_states(
    recipe: Recipe, states: GivenStates, step: int, numbers: range
) -> list[GivenState]:
    """The given states in which a step's groups with these numbers begin.

    A secret that is played again has another one of its states in each step.
    """
    groups, seed, rows = recipe.rollout.groups, recipe.seed, range(len(states))
    if numbers.start >= groups:
        places = range(numbers.start - groups, numbers.stop - groups)
        chosen = spare_secrets(rows, seed=seed, step=step, places=places)
    else:
        chosen = planned(rows, seed, range(step * groups, (step + 1) * groups))
        if recipe.replayed:
            own = {secret: [] for secret in recipe.replayed}
            for row, secret in enumerate(states.secrets):
                if secret in own:
                    own[secret].append(row)
            again = [own[secret][step % len(own[secret])] for secret in recipe.replayed]
            chosen = [*chosen[: groups - len(again)], *again]
        chosen = chosen[numbers.start : numbers.stop]
    return [states[row] for row in chosen]


def mix_secrets(
    places: range,
    share: float,
    training: Callable[[range], list[str]],
    allowed: Callable[[range], list[str]],
    phase: int = 0,
) -> list[str]:
    """The secrets at these places, where a share of all places has any allowed word.

    The places with an allowed word are evenly spread. training, allowed: give the secrets at some
    places of their own sequence, so that each sequence is played without gaps. phase: moves the
    places with an allowed word.
    """

    def count(place: int) -> int:
        """How many of the places before this one have an allowed word."""
        return math.floor(share * (place + phase) + _ROUNDING) - math.floor(
            share * phase + _ROUNDING
        )

    first, last = count(places.start), count(places.stop)
    plain = iter(training(range(places.start - first, places.stop - last)))
    extra = iter(allowed(range(first, last)))
    return [next(extra if count(p + 1) > count(p) else plain) for p in places]


def train_step(step: Step) -> StepResult:
    """Play the games of a step and improve the policy on them.

    Each process plays and trains its own groups. Advantages, weights and metrics cover the whole
    step. step.check is only called before the policy changes.
    """
    recipe = step.recipe
    rollouts, dropped, advantages = sample_groups(step)
    played = rollouts + dropped
    metrics = {
        **game_metrics(games_of(played), [turn for r in played for turn in r.game.turns]),
        **answer_metrics(games_of(played), recipe.words),
        **reward_metrics([rollout.reward for rollout in played]),
        **group_metrics(
            groups=len({rollout.group for rollout in rollouts}),
            idle=len(groups_without_spread(rollouts, advantages)),
            replaced=len(dropped) // recipe.rollout.num_generations,
            skips=recipe.algorithm.skips_zero_advantages,
        ),
        "turns/zero_spread": share_of_idle_turns(rollouts, advantages),
        "train/extra_games": float(len(dropped)),
        **token_metrics(played),
    }
    step.check()
    metrics |= run_updates(step, rollouts, advantages)
    return StepResult(rollouts=rollouts, advantages=advantages.per_turn, metrics=metrics)


def sample_groups(step: Step) -> tuple[list[Rollout], list[Rollout], Advantages]:
    """Play a step's groups, and replace groups that teach nothing.

    A replacement has another secret and takes over the group's number. The algorithm's
    resample limits how often this repeats.
    Returns the rollouts to train on, the replaced ones, and the advantages of the former.
    """
    recipe = step.recipe
    played = recipe.rollout.groups
    rollouts = play_groups(step, range(played))
    advantages = _credit(step, rollouts)
    dropped: list[Rollout] = []
    for _ in range(recipe.algorithm.resample):
        idle = groups_without_spread(rollouts, advantages).tolist()
        if not idle:
            break
        fresh = play_groups(step, range(played, played + len(idle)))
        numbers = dict(zip(range(played, played + len(idle)), idle, strict=True))
        played += len(idle)
        dropped += [rollout for rollout in rollouts if rollout.group in idle]
        rollouts = [rollout for rollout in rollouts if rollout.group not in idle]
        rollouts += [replace(rollout, group=numbers[rollout.group]) for rollout in fresh]
        rollouts.sort(key=lambda rollout: rollout.group)
        advantages = _credit(step, rollouts)
    return rollouts, dropped, advantages


def _credit(step: Step, rollouts: list[Rollout]) -> Advantages:
    """The algorithm's advantages. With rollout.letter_weight, those of letters are added."""
    advantages = step_advantages(rollouts, step.recipe)
    if not step.recipe.rollout.letter_weight:
        return advantages
    tokenizer = step.form.chat.tokenizer
    return replace(advantages, per_token=letter_advantages(rollouts, step.recipe, tokenizer))


def play_groups(step: Step, numbers: range) -> list[Rollout]:
    """Play and score the groups with these numbers, shared among all processes.

    Numbers from rollout.groups on belong to replacement groups.
    """
    processes = step.policy.processes
    mine = share(len(numbers), processes)
    rollouts = score_rollouts(step, collect_rollouts(step, numbers[mine.start : mine.stop]))
    return [rollout for part in processes.gather(rollouts) for rollout in part]


def collect_rollouts(step: Step, numbers: range) -> list[Rollout]:
    """Play the groups with these numbers. Returns their rollouts, group by group.

    A kind of rollouts may add groups with the same secrets, see wordle_rl.rollouts.kinds.
    """
    recipe = step.recipe
    turns = recipe.rules.max_turns
    if recipe.states is not None:
        given = group_states(recipe, recipe.states, step.number, numbers)
        secrets, starts = [g.secret for g in given], [g.state(turns) for g in given]
    else:
        secrets = group_secrets(recipe, step.number, numbers)
        starts = [State(max_turns=turns)] * len(secrets)
    if recipe.history is not None:
        starts = recipe.history.states(
            secrets, numbers, seed=recipe.seed, step=step.number, max_turns=turns
        )
    task = RolloutTask(step=step, places=numbers, secrets=secrets, starts=starts)
    return play_task(task)
