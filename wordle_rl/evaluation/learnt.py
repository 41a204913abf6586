"""What training taught, in numbers: the games of its start, its runs and scripted players compared.

The result is ready for JSON. Shares are in 0..1, and intervals are 95 % over secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wordle_rl.evaluation.depth import results_by_depth
from wordle_rl.evaluation.gains import group_gains
from wordle_rl.evaluation.losses import (
    Families,
    expected_in_common,
    finishing,
    loss_rates,
    lost_by_all,
    lost_games,
    win_shares,
)
from wordle_rl.evaluation.pass_at_k import pass_differences, pooled_passes
from wordle_rl.evaluation.skill import by_turn, skills
from wordle_rl.evaluation.word_choice import (
    describe_openers,
    opener_bits,
    repeats_letter,
    word_choice,
    words_left,
)
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game

Games = Sequence[Game]

START, TRAINED, TEACHER, SOLVER = "start", "trained", "random fitting word", "greedy entropy"
_STRICTER = (4, 3)  # wins with so many guesses or fewer are also counted on their own
_JUDGED = 4  # drawn games of a secret whose every guess is judged, which takes 1 ms a guess
_BIN = 0.1  # bits, of the histogram of openers
_SIZES = {2: "1-2", 4: "3-4", 6: "5-6", 10**6: "7 or more"}  # largest size -> label, of a family
_COMMON = 24  # secrets that all runs lose, of which the numbers are kept


@dataclass(frozen=True, kw_only=True)
class Played:
    """The games of one player."""

    greedy: Games  # one on each secret
    drawn: Mapping[str, Games]  # temperature -> several on each secret


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Everybody's games on the same secrets. The first temperature is the training's."""

    start: Played
    trained: Sequence[Played]  # one for each run
    teacher: Games  # several on each secret: a random allowed word that fits all clues
    solver: Games  # one on each secret: greedy entropy without the list of answers

    @property
    def temperature(self) -> str:
        """The first one, at which all but pass@k is measured."""
        return next(iter(self.start.drawn))

    def drawn(self) -> dict[str, list[Games]]:
        """Player -> the drawn games of each of its runs."""
        first = self.temperature
        trained = [one.drawn[first] for one in self.trained]
        return {START: [self.start.drawn[first]], TRAINED: trained, TEACHER: [self.teacher]}


def measure(cast: Cast, knowledge: Knowledge, max_turns: int) -> dict[str, Any]:
    """All numbers of docs/LEARNT.md."""
    return {
        "secrets": len({game.secret for game in cast.solver}),
        "runs": len(cast.trained),
        "samples": len(cast.teacher) // len(cast.solver),
        "temperature": cast.temperature,
        "results": _results(cast),
        "passes": {
            temperature: {
                str(within): _passes(cast, temperature, within)
                for within in (max_turns, *(few for few in _STRICTER if few < max_turns))
            }
            for temperature in cast.start.drawn
        },
        "gains": [asdict(group) for group in _gains(cast)],
        "turns": _turns(cast, knowledge, max_turns),
        "words": _words(cast, knowledge),
        "openers": _openers(cast, knowledge),
        "losses": _losses(cast, knowledge),
    }


def _results(cast: Cast) -> dict[str, Any]:
    """Wins and mean guesses of greedy play; the teacher cannot be greedy."""
    played = {
        START: [cast.start.greedy],
        TRAINED: [run.greedy for run in cast.trained],
        TEACHER: [cast.teacher],
        SOLVER: [cast.solver],
    }
    return {
        name: [results for games in runs for results in results_by_depth(games).values()]
        for name, runs in played.items()
    }


def _passes(cast: Cast, temperature: str, within: int) -> dict[str, Any]:
    start, trained = cast.start.drawn[temperature], [run.drawn[temperature] for run in cast.trained]
    shares = [_never_won(start, within), *(_never_won(games, within) for games in trained)]
    missed, others = shares[0], shares[1:]
    return {
        START: pooled_passes([start], within=within),
        TRAINED: pooled_passes(trained, within=within),
        "each run": [pooled_passes([games], within=within) for games in trained],
        TEACHER: pooled_passes([cast.teacher], within=within),
        "difference": pass_differences(start, trained, within=within),
        "never won": {
            START: len(missed),
            TRAINED: [len(other) for other in others],
            "by the start alone": [len(missed - other) for other in others],
            "by the run alone": [len(other - missed) for other in others],
        },
    }


def _never_won(games: Games, within: int) -> set[str]:
    """Secrets without a win in so many guesses."""
    won = {game.secret for game in games if game.won and game.state.turn <= within}
    return {game.secret for game in games} - won


def _gains(cast: Cast) -> list[Any]:
    drawn = cast.drawn()
    return group_gains(drawn[START][0], drawn[TRAINED])


def _turns(cast: Cast, knowledge: Knowledge, max_turns: int) -> dict[str, Any]:
    """Player -> turn -> skill, and what its games had reached; also for each run alone."""

    def of(*runs: Games) -> dict[str, Any]:
        found = by_turn(skills(_judged(runs), knowledge), max_turns)
        reached = words_left([game for games in runs for game in games], knowledge, max_turns)
        return {turn: {**found.get(turn, {}), **reached[turn]} for turn in reached}

    drawn = cast.drawn()
    return {
        **{name: of(*runs) for name, runs in drawn.items()},
        SOLVER: of(cast.solver),
        "each run": [of(games) for games in drawn[TRAINED]],
    }


def _judged(runs: Sequence[Games]) -> list[Game]:
    """The first few games on each secret of each run."""
    kept = []
    for games in runs:
        seen: Counter[str] = Counter()
        for game in games:
            seen[game.secret] += 1
            if seen[game.secret] <= _JUDGED:
                kept.append(game)
    return kept


def _words(cast: Cast, knowledge: Knowledge) -> dict[str, Any]:
    """Player -> kind of turn -> its words and the fitting ones."""
    found: dict[str, Any] = {}
    for name, runs in cast.drawn().items():
        found[name] = {}
        for kind, openers in (("openers", True), ("later", False)):
            choice = word_choice(_judged(runs), knowledge, openers=openers)
            found[name][kind] = None if choice is None else asdict(choice)
    return found


def _openers(cast: Cast, knowledge: Knowledge) -> dict[str, Any]:
    """Openers drawn and greedy, and how many drawn ones had so many bits."""
    drawn = cast.drawn()
    greedy = {START: [cast.start.greedy], TRAINED: [run.greedy for run in cast.trained]}
    return {
        "best_bits": float(knowledge.opener_bits.max()),
        "allowed_words": len(knowledge.words.allowed),
        "drawn": {name: [describe_openers(g, knowledge) for g in drawn[name]] for name in drawn},
        "greedy": {name: [describe_openers(g, knowledge) for g in greedy[name]] for name in greedy},
        "bits": {
            name: _histogram([b for games in runs for b in opener_bits(games, knowledge)])
            for name, runs in drawn.items()
        },
    }


def _histogram(values: Sequence[float]) -> dict[str, float]:
    """Lower end of a bin -> the share of the values in it."""
    counts = Counter(int(value / _BIN) for value in values)
    return {f"{_BIN * place:.1f}": count / len(values) for place, count in sorted(counts.items())}


def _losses(cast: Cast, knowledge: Knowledge) -> dict[str, Any]:
    """The lost secrets and games, and how often each kind of secret is lost."""
    families = Families(knowledge.words.allowed)
    greedy = [run.greedy for run in cast.trained]
    rates = [np.mean([not game.won for game in games]) for games in greedy]
    common = lost_by_all(greedy)
    merged = {name: [g for games in runs for g in games] for name, runs in cast.drawn().items()}
    return {
        "greedy": [lost_by_all([games]) for games in greedy],
        "by all": common,
        "by all, expected by chance": expected_in_common(
            [float(rate) for rate in rates], len(cast.solver)
        ),
        "secrets": [_describe(secret, cast, knowledge, families) for secret in common[:_COMMON]],
        "by family": {
            name: _sorted(loss_rates(games, lambda secret: _size(secret, families)))
            for name, games in merged.items()
        },
        "by letters": {name: loss_rates(games, _letters) for name, games in merged.items()},
        "endings": {
            **{name: _endings(games, knowledge) for name, games in merged.items()},
            f"{START}, greedy": _endings(cast.start.greedy, knowledge),
            f"{TRAINED}, greedy": _endings([g for games in greedy for g in games], knowledge),
        },
        "finishing": {
            name: finishing(_judged(runs), knowledge) for name, runs in cast.drawn().items()
        },
    }


def _describe(secret: str, cast: Cast, knowledge: Knowledge, families: Families) -> dict[str, Any]:
    """A secret, its family, and how often each player wins it."""
    pattern, members = families.largest(secret)
    answers = [word for word in members if word in knowledge.words.answer_index]
    runs = cast.drawn()
    shares = {
        name: float(np.mean([win_shares(games)[secret] for games in games_of]))
        for name, games_of in runs.items()
    }
    solved = next(game for game in cast.solver if game.secret == secret)
    return {
        "secret": secret,
        "repeats": repeats_letter(secret),
        "pattern": pattern,
        "members": len(members),
        "answers": len(answers),
        "wins": shares,
        "solver": solved.state.turn if solved.won else None,
        "guesses": [
            [turn.guess for turn in game.turns]
            for run in cast.trained
            for game in run.greedy
            if game.secret == secret
        ],
    }


def _size(secret: str, families: Families) -> str:
    members = len(families.largest(secret)[1])
    return next(label for most, label in _SIZES.items() if members <= most)


def _sorted(rates: dict[str, Any]) -> dict[str, Any]:
    return {label: rates[label] for label in _SIZES.values() if label in rates}


def _letters(secret: str) -> str:
    return "a repeated letter" if repeats_letter(secret) else "five letters"


def _endings(games: Games, knowledge: Knowledge) -> dict[str, Any]:
    """How the lost games ended, as shares of them."""
    lost = lost_games(games, knowledge)
    if not lost:
        return {"lost": 0}
    return {
        "lost": len(lost),
        "known": float(np.mean([one.left == 1 for one in lost])),
        "one missing": float(np.mean([one.one_missing for one in lost])),
        "left": float(np.median([one.left for one in lost])),
        "ignored": float(np.mean([one.ignored for one in lost])),
        "wasted": float(np.mean([one.wasted for one in lost])),
    }
