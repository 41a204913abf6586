"""How well each turn was played, compared with the best that the clues allowed.

Information is expected, that is averaged over the candidates, and looks one guess ahead. For whole
games compared with the best player see wordle_rl.evaluation.regret.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from wordle_rl.evaluation.habits import discoveries
from wordle_rl.evaluation.regret import Regret
from wordle_rl.game.knowledge import Knowledge, broken_clues, letter_facts
from wordle_rl.game.rules import Game, PlayedTurn, TurnKind

# A step's skill is measured on some of its games: the best bits of a state cost 0.3 ms where no
# reward has computed them, everything else costs 0.04 ms a turn.
_GAMES = 96  # measured games of a step, evenly spread
_EVERY = 6  # one of so many of these has its best bits computed
_TURNS = 6  # turns with metrics of their own
_BY_TURN = ("bits_ratio", "consistency", "expected_remaining")


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnSkill:
    """How an accepted guess used the clues before it; None where there was no such clue."""

    number: int  # of the turn in its game, from 1
    bits: float  # expected information
    best_bits: float | None  # the most that any allowed guess had; None if not computed
    remaining: float  # expected number of candidates after the feedback
    fits: bool | None  # ignores no clue
    fits_placed: bool | None  # ✓: keeps every known place
    fits_elsewhere: bool | None  # -: has every known letter, and none where it cannot be
    fits_absent: bool | None  # x: has no letter, and no copy of one, that the secret lacks


def skills(games: Iterable[Game], knowledge: Knowledge, *, best: bool = True) -> list[TurnSkill]:
    """The skill in every accepted guess of some games. best: whether to compute best_bits."""
    turns = (turn for game in games for turn in game.turns if turn.kind is TurnKind.ACCEPTED)
    return [_judge(turn, knowledge, best) for turn in turns]


def _judge(turn: PlayedTurn, knowledge: Knowledge, best: bool) -> TurnSkill:
    guess, state = turn.guess or "", turn.state
    facts = letter_facts(state.clues)
    counts = broken_clues(guess, facts)
    bits, remaining = knowledge.outlook(guess, knowledge.candidates(state))
    return TurnSkill(
        number=state.turn + 1,
        bits=bits,
        best_bits=knowledge.best_entropy(state) if best else None,
        remaining=remaining,
        fits=not counts.total if state.clues else None,
        fits_placed=not counts.placed if facts.placed else None,
        fits_elsewhere=not counts.known + counts.wrong_place if facts.excluded else None,
        fits_absent=not counts.absent if facts.at_most else None,
    )


def summary(turns: Sequence[TurnSkill]) -> dict[str, float | None]:
    """Means over guesses; None where there is nothing to divide by.

    bits_ratio is the ratio of the sums. consistency is the share of guesses that fit all clues,
    among guesses with any clue; the others of that name count one kind of clue.
    """
    pairs = [(turn.bits, turn.best_bits) for turn in turns if turn.best_bits is not None]
    best = sum(bits for _, bits in pairs)
    return {
        "consistency": _mean(turn.fits for turn in turns),
        "consistency_placed": _mean(turn.fits_placed for turn in turns),
        "consistency_elsewhere": _mean(turn.fits_elsewhere for turn in turns),
        "consistency_absent": _mean(turn.fits_absent for turn in turns),
        "bits_gained": _mean(turn.bits for turn in turns),
        "best_bits": best / len(pairs) if pairs else None,
        "bits_ratio": sum(bits for bits, _ in pairs) / best if best else None,
        "expected_remaining": _mean(turn.remaining for turn in turns),
    }


def skill_metrics(
    games: Sequence[Game], knowledge: Knowledge, regret: Regret, prefix: str = "skill"
) -> dict[str, float]:
    """Metrics of one step's games; NaN where nothing was played.

    Regret and discoveries are over all games, the rest over at most 96, evenly spread; best bits
    over every sixth of these.
    """
    sample = [games[i] for i in np.unique(np.arange(_GAMES) * len(games) // _GAMES)]
    turns = skills(sample[::_EVERY], knowledge)
    rest = [game for index, game in enumerate(sample) if index % _EVERY]
    turns += skills(rest, knowledge, best=False)
    means = {"regret": regret.mean(games), **discoveries(games, knowledge)}
    metrics = {f"{prefix}/{name}": value for name, value in (summary(turns) | means).items()}
    for number in range(1, min(games[0].rules.max_turns, _TURNS) + 1):
        turn_means = summary([turn for turn in turns if turn.number == number])
        metrics |= {f"{prefix}/turn_{number}/{name}": turn_means[name] for name in _BY_TURN}
    return {name: float("nan") if value is None else value for name, value in metrics.items()}


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
