"""Where the games of a step begin, and on which secrets.

They depend only on the seed, the step and what a curriculum replays. So a resumed run plays the
same games as an uninterrupted one.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from wordle_rl.game.rules import State
from wordle_rl.policy.sampling import Purpose, generator, planned
from wordle_rl.rollouts.given import GivenState
from wordle_rl.rollouts.play import Start
from wordle_rl.rollouts.settings import Recipe

_ROUNDING = 1e-9  # 0.29 x 100 is below 29
T = TypeVar("T")  # a secret, or the position of a row


def deal_starts(recipe: Recipe, step: int, numbers: range) -> list[Start]:
    """Where a step's groups with these numbers begin. All are planned, or all are spare."""
    turns = recipe.rules.max_turns
    if recipe.states is not None:
        rows = group_states(recipe, recipe.states, step, numbers)
        secrets, states = [row.secret for row in rows], [row.state(turns) for row in rows]
    else:
        secrets = group_secrets(recipe, step, numbers)
        states = [State(max_turns=turns)] * len(secrets)
    if recipe.history is not None:
        states = recipe.history.states(
            secrets, numbers, seed=recipe.seed, step=step, max_turns=turns
        )
    triples = zip(numbers, secrets, states, strict=True)
    return [Start(group=number, secret=secret, state=state) for number, secret, state in triples]


def spare_secrets(secrets: Sequence[T], positions: range, *, seed: int, step: int) -> list[T]:
    """Secrets for a step's replacement groups, taken from a separate shuffle."""
    order = generator(Purpose.SPARE_SECRETS, seed=seed, step=step).permutation(len(secrets))
    return [secrets[int(order[position % len(secrets)])] for position in positions]


def group_secrets(recipe: Recipe, step: int, numbers: range) -> list[str]:
    """The secrets of a step's groups with these numbers.

    recipe.allowed_share of the groups have one of recipe.allowed_secrets. The last groups have
    those that are played again.
    """
    groups, seed, share = recipe.rollout.groups, recipe.seed, recipe.allowed_share
    training, allowed = recipe.secrets, recipe.allowed_secrets
    if numbers.start >= groups:
        draw = partial(spare_secrets, seed=seed, step=step)
        positions = range(numbers.start - groups, numbers.stop - groups)
        # The phase differs from step to step, since most steps have too few positions for a share.
        return mix_secrets(positions, share, partial(draw, training), partial(draw, allowed), step)
    secrets = mix_secrets(
        range(step * groups, (step + 1) * groups),
        share,
        partial(planned, training, seed),
        partial(planned, allowed, seed, purpose=Purpose.ALLOWED_SECRETS),
    )
    all_secrets = [*secrets[: groups - len(recipe.replayed)], *recipe.replayed]
    return all_secrets[numbers.start : numbers.stop]


def group_states(
    recipe: Recipe, states: Sequence[GivenState], step: int, numbers: range
) -> list[GivenState]:
    """The given states in which a step's groups with these numbers begin.

    A secret that is played again has another one of its states in each step.
    """
    groups, seed, rows = recipe.rollout.groups, recipe.seed, range(len(states))
    if numbers.start >= groups:
        positions = range(numbers.start - groups, numbers.stop - groups)
        return [states[row] for row in spare_secrets(rows, positions, seed=seed, step=step)]
    picks = planned(rows, seed, range(step * groups, (step + 1) * groups))
    replays = []
    for secret in recipe.replayed:
        matches = [row for row, state in enumerate(states) if state.secret == secret]
        replays.append(matches[step % len(matches)])
    picks = [*picks[: groups - len(replays)], *replays]
    return [states[row] for row in picks[numbers.start : numbers.stop]]


def mix_secrets(
    positions: range,
    share: float,
    training: Callable[[range], list[str]],
    allowed: Callable[[range], list[str]],
    phase: int = 0,
) -> list[str]:
    """The secrets at these positions, where a share of all positions has any allowed word.

    Those with an allowed word are evenly spread. training, allowed: give the secrets at some
    positions of their own sequence, so that each sequence is played without gaps. phase: moves the
    positions with an allowed word.
    """

    def count(position: int) -> int:
        """How many of the positions before this one have an allowed word."""
        before_all, before_this = share * phase, share * (position + phase)
        return math.floor(before_this + _ROUNDING) - math.floor(before_all + _ROUNDING)

    first, last = count(positions.start), count(positions.stop)
    main_secrets = iter(training(range(positions.start - first, positions.stop - last)))
    extra_secrets = iter(allowed(range(first, last)))
    return [next(extra_secrets if count(p + 1) > count(p) else main_secrets) for p in positions]
