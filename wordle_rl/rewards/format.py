"""Reward for an answer in the right format, graded so that a beginner can find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wordle_rl.game.rules import PlayedTurn
from wordle_rl.prompts.parser import ParseFailure, parse
from wordle_rl.prompts.tool_calls import parse_call
from wordle_rl.words.lists import WordLists

IN_LIST = 1.0
NOT_IN_LIST = 0.5
WRONG_CONTENT = 0.4  # also the most for a truncated answer
_GRADES = {
    ParseFailure.NOT_FIVE_LETTERS: WRONG_CONTENT,
    ParseFailure.NOT_ASCII_LETTERS: WRONG_CONTENT,
    ParseFailure.MALFORMED_CALL: WRONG_CONTENT,
    ParseFailure.SEVERAL_GUESSES: 0.3,
    ParseFailure.NESTED_GUESSES: 0.3,
    ParseFailure.GUESS_INSIDE_THINK: 0.3,
    ParseFailure.UNCLOSED_GUESS: 0.2,
    ParseFailure.UNOPENED_GUESS: 0.2,
    ParseFailure.UNCLOSED_THINK: 0.1,
}
_ONLY_THOUGHT = 0.1


@dataclass(frozen=True, kw_only=True)
class Format:
    """1 for a guess in the list, 0.5 for other five letters, less for a broken format.

    - 0.4: one guess tag with wrong content, or any guess in a truncated answer
    - 0.3: several guesses, or one inside the think block
    - 0.2: half a guess tag
    - 0.1: only a think block
    - 0: anything else

    Where guesses are tool calls, the tags of a call are the guess tags.
    """

    words: WordLists  # its allowed guesses are the list
    form: str = "conversation"  # of the rollouts, see wordle_rl.rollouts.forms
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is not None:
            return IN_LIST if turn.guess in self.words.allowed_set else NOT_IN_LIST
        parsed = (parse_call if self.form == "tool" else parse)(turn.text)
        if parsed.reason is None:  # a guess that does not count: the answer hit its token limit
            return WRONG_CONTENT
        if parsed.reason is ParseFailure.NO_GUESS_TAG and parsed.closed_thinks:
            return _ONLY_THOUGHT
        return _GRADES.get(parsed.reason, 0.0)
