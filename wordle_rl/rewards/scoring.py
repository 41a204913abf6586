"""Adds up the rewards of a game, turn by turn, so that playing badly on purpose never pays.

A set that is not lawful is the plain weighted sum. A lawful one has a Win, whose share of the
reward is the outcome; the other components are shaping, and P is the most that a turn can get of
it. Then:

1. A violation (no guess, no word, hard mode broken, a repeat) keeps its graded format score up to
   0.5, which is what an honest guess has at the least, and takes the declared minimum of everything
   else; Win's minimum is below 0, so it scores below every honest legal guess in the same state.
2. "retry": an answer that is asked for again uses no turn, so its shaping counts at most 0.
   Shaping of a game therefore never exceeds P times the turns it had to play.
3. "credit": a win lifts the shaping of the game to P times the turns it had to play, as if each one
   had been perfect. A won game is worth that much plus its Win, whatever came before, so the only
   way to more is to win earlier, and the worst win is above every loss. Winning after violations
   takes off less than half of what one turn is worth: the order of wins by turn stays.
4. "forfeit": a game that a violation ended is charged the minimum of every component for each turn
   it did not play, so that giving up is no way out of turns that would score below 0.

Turns to play are counted from the state in which the player took over, so the order of games by
reward holds among games taken over after equally many turns, such as those of one group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from wordle_rl.game.rules import Game, PlayedTurn
from wordle_rl.rewards.base import Reward, is_violation
from wordle_rl.rewards.format import NOT_IN_LIST, Format
from wordle_rl.rewards.win import Win
from wordle_rl.runs.instantiate import check_range

CREDIT, FORFEIT, RETRY = "credit", "forfeit", "retry"
KL, OVERLONG = "kl", "overlong"  # what an algorithm may take off; outside the laws above
# Sums are rounded, so that games of equal reward compare equal whatever order they were added in.
_DIGITS = 9
MOST_WEIGHT = 1_000_000  # sums keep those digits


@dataclass(frozen=True, kw_only=True)
class GameReward:
    """The reward of one game and all that it is made of."""

    turns: tuple[dict[str, float], ...]  # [K] weighted share of each component, per played turn

    @property
    def turn_totals(self) -> tuple[float, ...]:
        """[K] reward of each turn."""
        return tuple(_sum(turn.values()) for turn in self.turns)

    @property
    def components(self) -> dict[str, float]:
        """Sum over the turns of each component, and of the corrections that were made."""
        names = dict.fromkeys(name for turn in self.turns for name in turn)
        return {name: _sum(turn.get(name, 0.0) for turn in self.turns) for name in names}

    @property
    def total(self) -> float:
        """Reward of the game: the sum of everything in turns."""
        return _sum(share for turn in self.turns for share in turn.values())

    def charged(self, name: str, shares: Iterable[float]) -> GameReward:
        """The same with one more component, which has a share [K] in each turn."""
        turns = zip(self.turns, shares, strict=True)
        return GameReward(turns=tuple({**turn, name: float(share)} for turn, share in turns))


@dataclass(frozen=True, kw_only=True)
class RewardSet:
    """Named rewards with their weights.

    Raises ValueError when names and weights differ, a weight is below 0 or too large, or a range
    is reversed, and for a lawful set unless it has exactly one Win, of positive weight, and no
    component whose greatest value is below 0. A weight of 0 switches a component off: it is not
    computed.
    """

    components: Mapping[str, Reward]
    weights: Mapping[str, float]
    lawful: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", dict(self.components))
        object.__setattr__(self, "weights", {n: float(w) for n, w in self.weights.items()})
        names = sorted(self.components)
        if unknown := sorted(set(self.weights) ^ set(names)):
            raise ValueError(f"reward weights must be for {names}; unknown or missing: {unknown}")
        if reserved := sorted({CREDIT, FORFEIT, RETRY, KL, OVERLONG} & set(names)):
            raise ValueError(f"reward components cannot be called {reserved}: scoring uses that")
        for name, weight in self.weights.items():
            check_range(f"reward weight of {name}", weight, 0, MOST_WEIGHT)
        for name, part in self.components.items():
            if not isinstance(part.range, tuple):
                raise ValueError(f"reward {name} must have range as a property, a pair of numbers")
            least, greatest = part.range
            if not least <= greatest:
                raise ValueError(
                    f"reward {name} must have a range (least, greatest) in this order, "
                    f"not {part.range}"
                )
        if self.lawful:
            self._check_lawful()

    def _check_lawful(self) -> None:
        wins = [name for name, part in self.components.items() if isinstance(part, Win)]
        if [self.weights[name] > 0 for name in wins] != [True]:
            given = ", ".join(f"{name} of weight {self.weights[name]:g}" for name in wins)
            raise ValueError(
                "a lawful reward set must have exactly one win component with a weight above 0, "
                f"not {given or 'none'}; or set reward.lawful=false"
            )
        for name, part in self.components.items():
            if part.range[1] < 0:
                raise ValueError(
                    f"in a lawful reward set {name} must be able to reach 0 or more, "
                    f"not at most {part.range[1]}"
                )

    def with_weights(self, weights: Mapping[str, float]) -> RewardSet:
        """The same set with some or all weights replaced."""
        return replace(self, weights={**self.weights, **weights})

    @property
    def turn_maximum(self) -> float:
        """P: the most shaping that one turn can get."""
        return math.fsum(
            self.weights[name] * part.range[1]
            for name, part in self.components.items()
            if not isinstance(part, Win)
        )

    @property
    def turn_minimum(self) -> float:
        """The least that one turn can get, the outcome included."""
        return math.fsum(self.weights[n] * part.range[0] for n, part in self.components.items())

    def score(self, game: Game) -> GameReward:
        """Reward of a game, finished or cut off; the game is not changed."""
        unplayed = game.state.max_turns - game.state.turn if game.lost else 0
        return self.score_turns(game.turns, unplayed=unplayed)

    def score_turns(self, turns: Sequence[PlayedTurn], *, unplayed: int = 0) -> GameReward:
        """Reward of successive turns of one game, or of a single candidate turn.

        unplayed: turns that a violation took from a lost game.
        """
        parts = [self._turn(turn) for turn in turns]
        if self.lawful and turns:
            self._settle(turns, parts, unplayed)
        return GameReward(turns=tuple(parts))

    def to_go(self, game: Game, reward: GameReward, discount: float = 1.0) -> list[float]:
        """[K] what each turn and those after it earned, given what came before.

        A reward d turns later counts discount ** d. A win credits the most shaping for each turn it
        left unused, discounted alike, so at discount 1 playing longer never pays. What the credit
        of the whole game makes up for earlier turns is left out: those were already played.
        """
        own = [math.fsum(v for n, v in turn.items() if n != CREDIT) for turn in reward.turns]
        if self.lawful and game.won:
            unused = range(1, game.state.max_turns - game.state.turn + 1)
            own[-1] += self.turn_maximum * math.fsum(discount**d for d in unused)
        totals = accumulate(reversed(own), lambda later, now: now + discount * later)
        return [round(total, _DIGITS) for total in totals][::-1]

    def _turn(self, turn: PlayedTurn) -> dict[str, float]:
        violation = self.lawful and is_violation(turn)
        return {
            name: weight * self._value(name, turn, violation) if weight else 0.0
            for name, weight in self.weights.items()
        }

    def _value(self, name: str, turn: PlayedTurn, violation: bool) -> float:
        part = self.components[name]
        if violation and not isinstance(part, Format):
            return part.range[0]
        value = part(turn)
        if not part.range[0] <= value <= part.range[1]:  # also false for NaN
            raise ValueError(f"reward {name} gave {value}, outside its range {part.range}")
        return min(value, NOT_IN_LIST) if violation else value

    def _settle(
        self, turns: Sequence[PlayedTurn], parts: list[dict[str, float]], unplayed: int
    ) -> None:
        """Add the corrections of a lawful set to the shares; no share is changed."""
        name, win = self._win()
        for (turn, after), part in zip(pairwise(turns), parts, strict=False):
            shaping = math.fsum(part.values()) - part[name]
            if after.state.turn == turn.state.turn and shaping > 0:
                part[RETRY] = -shaping
        first, last = turns[0].state, turns[-1]
        if last.won:
            violations = sum(map(is_violation, turns))
            step = self.weights[name] * win.step(first.max_turns)
            target = (
                (first.max_turns - first.turn) * self.turn_maximum
                + parts[-1][name]
                - step / 2 * violations / len(turns)
            )
            parts[-1][CREDIT] = target - math.fsum(v for part in parts for v in part.values())
        elif unplayed:
            parts[-1][FORFEIT] = unplayed * self.turn_minimum

    def _win(self) -> tuple[str, Win]:
        return next((n, part) for n, part in self.components.items() if isinstance(part, Win))


def _sum(shares: Iterable[float]) -> float:
    return round(math.fsum(shares), _DIGITS)
