"""Games, turns and probabilities as the page gets them: plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wordle_rl.evaluation.turn_facts import TurnFacts, TurnJudge
from wordle_rl.game.rules import PlayedTurn, TurnKind, marks_of
from wordle_rl.rewards.scoring import GameReward
from wordle_rl.rollouts.likeliest_words import WordChances
from wordle_rl.rollouts.opponent import Asked, WatchedGame
from wordle_rl.runs.files import plain
from wordle_rl.web.match import Match

NOTES = {
    TurnKind.ACCEPTED: "",
    TurnKind.NOT_A_WORD: "not a word",
    TurnKind.BREAKS_HARD_MODE: "ignores a clue",
    TurnKind.UNPARSABLE: "no guess",
}
WORDS, LETTERS = 10, 6  # of a player's chances: likeliest words, and letters in each place
_LONGEST = 2_000  # characters of an answer


def show_row(turn: PlayedTurn, *, hidden: bool = False) -> dict[str, Any]:
    """One row of a board. hidden: without its letters."""
    return {
        "guess": None if hidden else turn.guess,
        "marks": None if turn.feedback is None else marks_of(turn.feedback),
        "note": NOTES[turn.kind],
    }


def show_match(match: Match) -> dict[str, Any]:
    """A match as far as the person may see it."""
    mine, theirs, over = match.mine, match.theirs.game, match.over
    return {
        "over": over,
        "won": mine.won,
        "secret": mine.secret if over else None,
        "max_turns": mine.rules.max_turns,
        "rows": [show_row(turn) for turn in mine.turns],
        "opponent": match.opponent.name,
        "their_rows": [show_row(turn, hidden=not over) for turn in match.shown],
        "they_are_done": len(match.shown) == len(theirs.turns),
        "they_won": theirs.won and len(match.shown) == len(theirs.turns),
        "their_turns": theirs.state.turn if over else None,
    }


def show_watched(watched: WatchedGame, reward: GameReward, judge: TurnJudge) -> dict[str, Any]:
    """A whole game with the facts and the reward of each turn."""
    game = watched.game
    return {
        "secret": game.secret,
        "won": game.won,
        "status": str(game.status),
        "max_turns": game.rules.max_turns,
        "reward": reward.total,
        "turns": [
            {
                **show_row(turn),
                "note": turn.reason or NOTES[turn.kind],
                "text": turn.text[:_LONGEST],
                "reward": {name: round(value, 6) for name, value in parts.items()},
                "facts": show_facts(judge.judge(turn.state, turn.guess)),
            }
            for turn, parts in zip(game.turns, reward.turns, strict=True)
        ],
    }


def show_facts(facts: TurnFacts) -> dict[str, Any]:
    return plain(asdict(facts))


def show_chances(chances: WordChances | None, guess: str | None) -> dict[str, Any] | None:
    """The likeliest words, and the likeliest letters in each place, with their probabilities."""
    if chances is None:
        return None
    return {
        "words": _first(chances.words, WORDS),
        "letters": [_first(letters, LETTERS) for letters in chances.letters],
        "guess": None if guess is None else chances.words.get(guess),
        "untried": chances.untried,
        "other": chances.other,
        "exact": chances.exact,
    }


def show_asked(asked: Asked) -> dict[str, Any]:
    """What a player answers on a board."""
    return {
        "guess": asked.guess,
        "reason": asked.reason,
        "text": asked.reply.text[:_LONGEST],
        "chances": show_chances(asked.chances, asked.guess),
    }


def _first(chances: dict[str, float], count: int) -> list[Sequence[str | float]]:
    return [(name, chance) for name, chance in list(chances.items())[:count]]
