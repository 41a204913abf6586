"""Adds up the rewards of a game, turn by turn, so that playing badly on purpose never pays.

A set that is not lawful is the plain weighted sum. A lawful one has a Win, whose share is the
outcome. The other components are shaping; P is the most shaping that one turn can get. Four laws
correct the sum:

1. violation: an answer without a guess, a non-word, a guess that breaks hard mode and a repeat keep
   their graded format score up to 0.5, the least that an honest guess gets, and take the declared
   minimum of everything else. Win's minimum is below 0, so a violation scores below every honest
   legal guess in the same state.
2. retry: an answer that is asked for again uses no turn, so its shaping counts at most 0. The
   shaping of a game therefore never exceeds P times the turns it had to play.
3. credit: a win lifts the shaping of the game to P times the turns it had to play, as if each one
   had been perfect. A won game is worth that plus its Win, so the only way to more is to win
   earlier, and the worst win is above every loss. Violations take off less than half of what
   winning one turn earlier is worth, so wins stay in the order of their turns.
4. forfeit: a game that a violation ended is charged the minimum of every component for each turn it
   did not play, so giving up is no way out of turns that would score below 0.

Turns to play are counted from the state in which the player took over. So the order of games by
reward holds among games taken over after equally many turns, such as those of one group.

The order holds for the rewards of whole games, which rollout.credit=game compares. credit=turn
compares returns (see to_go), which are not ordered by outcome: they leave out earlier turns and
discount later ones. tests/rewards/test_returns.py measures how often, and at the turn that wins no
other return of the group was as high.

Example: format has weight 1 and a maximum of 1, so P = 1. Win has weight 2 and speed 0.5, so
winning one turn earlier is worth 2 * 0.5 / 5 = 0.2. A game of six turns has a non-word, a legal
word, and then the secret:

    turn       format     win  credit   total
    non-word    0.500  -0.200           0.300   law 1: the minimum of win is 2 * -0.1
    word        1.000   0.000           1.000
    secret      1.000   2.600   3.667   7.267   win: 2 * (1 + 0.5 * 3 / 5)
    game        2.500   2.400   3.667   8.567   law 3: 6 P + 2.6 - 0.2 / 2 * 1 violation / 3 turns

Where a non-word is asked for again, law 2 takes off the 0.5 of its format: retry -0.500. Where it
ends the game, law 4 charges five turns of 0 - 0.2: forfeit -1.000.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from numbers import Real
from typing import Annotated, Any, Protocol

from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, PlayedTurn
from wordle_rl.rewards.format import NOT_IN_LIST, Format
from wordle_rl.rewards.win import Win
from wordle_rl.runs.instantiate import ConfigError, Within, check_type, find_own, instantiate

CREDIT, FORFEIT, RETRY = "credit", "forfeit", "retry"
KL, OVERLONG = "kl", "overlong"  # what an algorithm may take off; outside the laws above
# Sums are rounded, so that equal rewards compare equal in whatever order they were added.
_DIGITS = 9
Weight = Annotated[float, Within(0, 1_000_000)]  # up to here, sums keep those digits


class RewardFailed(ValueError):
    """A reward raised an error, which is the cause, or gave no number in its range."""


class Reward(Protocol):
    """Rewards one turn. Its state holds all earlier clues of the game, and nothing else is needed.

    A frozen keyword-only dataclass of settings. Fields called words (WordLists), knowledge
    (Knowledge) and form are filled in when the set is built; all other fields come from YAML.
    """

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest value, unweighted; a class attribute will do.

        A violation gets the least value. A value outside the range stops the run.
        """
        ...

    def __call__(self, turn: PlayedTurn) -> float:
        """The unweighted reward of any turn, also of one that was not accepted."""
        ...


@dataclass(frozen=True, kw_only=True)
class GameReward:
    """The reward of one game, turn by turn and component by component."""

    turns: tuple[dict[str, float], ...]  # [K] weighted share of each component, per played turn

    @property
    def turn_totals(self) -> tuple[float, ...]:
        """[K] reward of each turn."""
        return tuple(_sum(turn.values()) for turn in self.turns)

    @property
    def components(self) -> dict[str, float]:
        """Sum over the turns of each component and each correction."""
        names = dict.fromkeys(name for turn in self.turns for name in turn)
        return {name: _sum(turn.get(name, 0.0) for turn in self.turns) for name in names}

    @property
    def total(self) -> float:
        """Reward of the game: the sum of everything in turns."""
        return _sum(share for turn in self.turns for share in turn.values())

    def charged(self, name: str, shares: Iterable[float]) -> GameReward:
        """This reward with one more component, whose shares [K] are given."""
        turns = zip(self.turns, shares, strict=True)
        return GameReward(turns=tuple({**turn, name: float(share)} for turn, share in turns))


@dataclass(frozen=True, kw_only=True)
class RewardSet:
    """Named rewards with their weights; a component of weight 0 is not computed.

    A lawful set must have exactly one Win, of positive weight, and no component whose greatest
    value is below 0; ValueError otherwise.
    """

    components: Mapping[str, Reward]
    weights: Mapping[str, float]
    lawful: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", dict(self.components))
        object.__setattr__(self, "weights", {n: float(w) for n, w in self.weights.items()})
        if self.components.keys() != self.weights.keys():
            names = sorted(self.components)
            raise ValueError(f"reward weights must be for {names}, not {sorted(self.weights)}")
        if clashes := sorted({CREDIT, FORFEIT, RETRY, KL, OVERLONG} & self.components.keys()):
            raise ValueError(f"reward components cannot be called {clashes}: scoring uses that")
        if not self.lawful:
            return
        wins = [name for name, part in self.components.items() if isinstance(part, Win)]
        if [self.weights[name] > 0 for name in wins] != [True]:
            text = ", ".join(f"{name} of weight {self.weights[name]:g}" for name in wins)
            raise ValueError(
                "a lawful reward set must have exactly one win component with a weight above 0, "
                f"not {text or 'none'}; or set reward.lawful=false"
            )
        for name, part in self.components.items():
            if part.range[1] < 0:
                raise ValueError(f"in a lawful reward set {name} must be able to reach 0 or more")

    @property
    def turn_maximum(self) -> float:
        """P: the most shaping that one turn can get."""
        shaping = (name for name, part in self.components.items() if not isinstance(part, Win))
        return math.fsum(self.weights[n] * self.components[n].range[1] for n in shaping)

    @property
    def turn_minimum(self) -> float:
        """The least that one turn can get, the outcome included."""
        return math.fsum(self.weights[n] * part.range[0] for n, part in self.components.items())

    def reward(self, game: Game) -> GameReward:
        """Reward of a game, finished or cut off; the game is not changed."""
        unplayed = game.state.max_turns - game.state.turn if game.lost else 0
        return self.reward_turns(game.turns, unplayed=unplayed)

    def reward_turns(self, turns: Sequence[PlayedTurn], *, unplayed: int = 0) -> GameReward:
        """Reward of successive turns of one game, or of a single candidate turn.

        unplayed: turns that a lost game still had when a violation ended it.
        """
        weights = self.weights.items()
        parts = [
            {name: weight * self._value(name, turn) if weight else 0.0 for name, weight in weights}
            for turn in turns
        ]
        if self.lawful and turns:
            self._correct(turns, parts, unplayed)
        return GameReward(turns=tuple(parts))

    def to_go(self, game: Game, reward: GameReward, discount: float = 1.0) -> list[float]:
        """[K] what each turn and the later ones earned; d turns later counts discount ** d.

        A win credits the most shaping for each unused turn, discounted in the same way, so at
        discount 1 playing longer never pays. The credit of the whole game also makes up for earlier
        turns; that part is left out here.
        """
        rewards = [math.fsum(v for n, v in turn.items() if n != CREDIT) for turn in reward.turns]
        if self.lawful and game.won:
            rewards[-1] += self._unused_shaping(game, discount)
        return _to_go(rewards, discount)

    def by_part(self, game: Game, reward: GameReward, discount: float) -> dict[str, list[float]]:
        """[K] by name: what each component and each correction adds to to_go."""
        names = dict.fromkeys(name for turn in reward.turns for name in turn)
        parts = {name: [turn.get(name, 0.0) for turn in reward.turns] for name in names}
        if CREDIT in parts:
            parts[CREDIT][-1] = self._unused_shaping(game, discount)
        return {name: _to_go(values, discount) for name, values in parts.items()}

    def _unused_shaping(self, game: Game, discount: float) -> float:
        turns = range(1, game.state.max_turns - game.state.turn + 1)
        return self.turn_maximum * math.fsum(discount**d for d in turns)

    def _value(self, name: str, turn: PlayedTurn) -> float:
        """The unweighted reward of a turn. Raises RewardFailed without a number in its range."""
        part, law_1 = self.components[name], self.lawful and turn.violation
        if law_1 and not isinstance(part, Format):
            return part.range[0]
        low, high = part.range
        try:
            result: Any = part(turn)
        except MemoryError:
            raise
        except Exception as error:
            raise RewardFailed(f"reward {name} raised {type(error).__name__}: {error}") from error
        value = float(result) if isinstance(result, Real) else math.nan
        if not low <= value <= high:
            raise RewardFailed(
                f"reward {name} gave {result!r}, no number from {low:g} to {high:g}, its range"
            )
        return min(value, NOT_IN_LIST) if law_1 else value

    def _correct(
        self, turns: Sequence[PlayedTurn], parts: list[dict[str, float]], unplayed: int
    ) -> None:
        """Add what laws 2 to 4 give and take to the shares [K]; no share is changed."""
        name, win = next((n, p) for n, p in self.components.items() if isinstance(p, Win))
        for (turn, after), part in zip(pairwise(turns), parts, strict=False):
            asked_again = after.state.turn == turn.state.turn  # law 2
            shaping = math.fsum(part.values()) - part[name]
            if asked_again and shaping > 0.0:
                part[RETRY] = -shaping
        first, last = turns[0].state, parts[-1]
        if turns[-1].won:  # law 3
            maximum = (first.max_turns - first.turn) * self.turn_maximum
            one_turn_earlier = self.weights[name] * win.step(first.max_turns)
            violations = sum(turn.violation for turn in turns)
            value = maximum + last[name] - one_turn_earlier / 2 * violations / len(turns)
            last[CREDIT] = value - math.fsum(v for part in parts for v in part.values())
        elif unplayed:  # law 4
            last[FORFEIT] = unplayed * self.turn_minimum


def _to_go(rewards: Sequence[float], discount: float) -> list[float]:
    totals = accumulate(reversed(rewards), lambda later, now: now + discount * later)
    return [round(total, _DIGITS) for total in totals][::-1]


def reward_of_guess(rewards: Sequence[GameReward]) -> dict[str, float]:
    """The mean parts of a guess, without the credit of a win, which belongs to no guess."""
    turns = [turn for reward in rewards for turn in reward.turns]
    names = dict.fromkeys(name for turn in turns for name in turn if name != CREDIT)
    return {name: _sum(t.get(name, 0.0) for t in turns) / len(turns) for name in names}


def _sum(shares: Iterable[float]) -> float:
    return round(math.fsum(shares), _DIGITS)


def build_reward_set(
    node: Any, knowledge: Knowledge, form: str = "conversation", where: str = "reward"
) -> RewardSet:
    """Build a RewardSet from its node in the config, whose `components` map names to rewards.

    where: the key of the node, for error messages. Each reward has its weight beside its settings,
    and null switches it off. A function of the user gets its settings after the turn; its range, 0
    to 1, is a setting, too.
    """
    components = node.get("components") if isinstance(node, Mapping) else node
    if not isinstance(components, Mapping):
        raise ConfigError(f"{where}.components must be a group of rewards, not {components!r}")
    extras = {"words": knowledge.words, "knowledge": knowledge, "form": form}
    parts, weights = {}, {}
    for name, entry in components.items():
        if entry is not None:
            key = f"{where}.components.{name}"
            check_type(key, entry, dict)
            settings = {"weight": 1.0, **entry}
            weights[name] = settings.pop("weight")
            check_type(f"{key}.weight", weights[name], Weight)
            target = find_own(f"{key}._target_", settings.get("_target_"))
            if inspect.isfunction(target):
                parts[name] = _build_function(key, target, **settings)
            else:
                parts[name] = instantiate(key, settings, Reward, **extras)
    return instantiate(where, {**node, "components": parts, "weights": weights}, RewardSet)


def _build_function(key: str, function: Callable[..., float], **node: Any) -> Reward:
    bounds = node.pop("range", [0, 1])
    check_type(f"{key}.range", bounds, list[float])
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise ConfigError(f"{key}.range must be its least and greatest value, not {bounds}")
    settings = {name: value for name, value in node.items() if name != "_target_"}
    try:
        inspect.signature(function).bind(None, **settings)
    except TypeError as error:
        names = ", ".join(["weight", "range", *[*inspect.signature(function).parameters][1:]])
        raise ConfigError(f"{key}: {error}; its settings are {names}") from None
    reward: Any = partial(function, **settings)
    reward.range = tuple(bounds)
    return reward
