"""Credit by turn for any trainer: from the rewards of turns to the advantage of each token.

Most trainers take one reward for a whole game, so good and bad guesses of one game are not told
apart. This function needs no model and none of our games: arrays in, arrays out.
Axes: R games of a step, K turns of a game, T tokens that a game's model wrote.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from wordle_rl.algorithms.base import Array, StepOutcomes
from wordle_rl.algorithms.credit import game_advantages, group_advantages, turn_advantages
from wordle_rl.algorithms.rloo import leave_one_out

Credit = Literal["turn", "game", "summed"]
Baseline = Literal["others", "mean", "standardised"]
_COMPARE: dict[Baseline, Callable[[Array], Array]] = {
    "others": leave_one_out,
    "mean": partial(group_advantages, scale="none"),
    "standardised": partial(group_advantages, scale="std"),
}


def token_advantages(
    rewards: Sequence[ArrayLike],
    tokens: Sequence[ArrayLike],
    groups: ArrayLike,
    *,
    credit: Credit = "turn",
    baseline: Baseline = "others",
    discount: float = 1.0,
) -> list[Array]:
    """[R] of [T]: the advantage of each token that a model wrote, its answers one after another.

    rewards: [R] of [K] what each turn earned. tokens: [R] of [K] how many tokens its answer has,
    those of the prompt and of feedback not counted. groups: [R] games with equal numbers began
    alike and are compared. discount: of the reward of each later turn, from 0 to 1.

    credit:
    - "turn": a token's advantage is what its turn and the later ones earned, less what the games
      of its group that still play on that turn earned from there on.
    - "game": the sums of whole games are compared, as GRPO was published.
    - "summed": each turn's own reward is compared, then a turn gets the sum from it on. It is here
      to be compared with: each turn takes off one mean, and guesses decide how many turns a game
      has, so it is biased (https://github.com/verl-project/verl/issues/7244).

    baseline: "others" takes off the mean of the others (RLOO, arXiv 2402.14740); "mean" that of all
    (Dr. GRPO, arXiv 2503.20783), which is (N - 1) / N of it where N games play; "standardised" also
    divides by their standard deviation (GRPO, arXiv 2402.03300).

    With "turn" and "others", the mean over games of advantage x gradient of log-probability, summed
    over tokens, has as its expected value the gradient of the expected reward. There is one
    exception: a game that is alone on a turn has nothing to be compared with and gets 0. So the
    part of a turn is multiplied by the chance that another game of the group reaches it. Divide by
    a constant, not by a game's own length, to keep that.

    Raises ValueError for shapes that do not fit, and for a group of one game.
    """
    turns = [np.asarray(row, dtype=float) for row in rewards]
    lengths = [np.asarray(row) for row in tokens]
    numbers = np.asarray(groups)
    _check(turns, lengths, numbers)
    for name, value, kinds in (("credit", credit, Credit), ("baseline", baseline, Baseline)):
        if value not in get_args(kinds):
            raise ValueError(f"{name} must be one of {', '.join(get_args(kinds))}, not {value!r}")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount must be from 0 to 1, not {discount}")
    share = 0.0 if credit == "summed" else discount
    outcomes = StepOutcomes(
        groups=numbers,
        returns=[_sum_from_each(row, share) for row in turns],
        won=np.zeros(len(turns), bool),
        complete=[np.ones(len(row), bool) for row in turns],
        by_turn=credit != "game",
        discount=share,
    )
    judge = game_advantages if credit == "game" else turn_advantages
    per_turn = judge(outcomes, _COMPARE[baseline])
    if credit == "summed":
        per_turn = [_sum_from_each(row, discount) for row in per_turn]
    return [np.repeat(row, counts) for row, counts in zip(per_turn, lengths, strict=True)]


def _sum_from_each(values: Array, discount: float) -> Array:
    """[K] of [K]: each number and the later ones, which count discount to the power of how late."""
    sums = accumulate(values[::-1].tolist(), lambda total, value: value + discount * total)
    return np.array(list(sums)[::-1])


def _check(rewards: list[Array], tokens: list[Array], groups: Array) -> None:
    if not len(rewards) == len(tokens) == len(groups) or groups.ndim != 1:
        raise ValueError(
            f"rewards, tokens and groups must have one entry for each game, not {len(rewards)}, "
            f"{len(tokens)} and {len(groups)}"
        )
    for number, (values, counts) in enumerate(zip(rewards, tokens, strict=True)):
        if values.ndim != 1 or values.shape != counts.shape or not len(values):
            raise ValueError(
                f"game {number} must have one reward and one count of tokens for each turn, not "
                f"{values.tolist()} and {counts.tolist()}"
            )
        if counts.dtype.kind not in "iu" or (counts < 0).any():
            raise ValueError(
                f"counts of tokens must be whole numbers from 0 on, not {counts.tolist()}"
            )
    members, sizes = np.unique(groups, return_counts=True)
    if (sizes < 2).any():
        raise ValueError(
            "a group must have 2 games or more, as games are compared: "
            f"{members[sizes < 2][0]} has 1"
        )
