"""Reward for an answer in the right format, graded so that a beginner can find it."""

from dataclasses import dataclass

from wordle_rl.game.rules import PlayedTurn
from wordle_rl.prompts.parser import CLOSE_THINK, OPEN_THINK, ParseFailure, parse, parse_call
from wordle_rl.words.lists import WordLists

IN_LIST = 1.0
WITHOUT_THOUGHT = 0.75  # for a guess in the list, where think blocks are asked for
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

    think: whether a guess in the list earns only 0.75 without a think block that holds a text.
    Other answers are graded as before: law 1 (wordle_rl.rewards.scoring) needs 0.5 to be the least
    of an honest guess. In a lawful set the won games of a group all have the same shaping, so with
    credit=game only lost games feel this.
    """

    words: WordLists  # its allowed guesses are the list
    form: str = "conversation"  # of the rollouts, see wordle_rl.rollouts.forms
    think: bool = False
    range = (0.0, 1.0)

    def __call__(self, turn: PlayedTurn) -> float:
        if turn.guess is not None:
            if turn.guess not in self.words.allowed_set:
                return NOT_IN_LIST
            # The opening tag may be part of the prompt.
            thought = parse(turn.text).thought.replace(OPEN_THINK, "").replace(CLOSE_THINK, "")
            return WITHOUT_THOUGHT if self.think and not thought.strip() else IN_LIST
        parsed = (parse_call if self.form == "tool" else parse)(turn.text)
        if parsed.reason is None:  # a guess that does not count: the answer hit its token limit
            return WRONG_CONTENT
        if parsed.reason is ParseFailure.NO_GUESS_TAG and parsed.thought:
            return _ONLY_THOUGHT
        return _GRADES.get(parsed.reason, 0.0)
