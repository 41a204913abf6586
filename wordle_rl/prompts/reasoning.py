"""Writes a teacher's thought before its guess: true statements about the state.

A thought gives the known places, letters known to be elsewhere, absent letters, the number of
answers that remain, and whether the guess fits. It does not name the guess, so the same thought can
precede every guess that the teacher might make in a state. Letters come in the order in which they
were found, so most of a thought repeats the one before it.

`_r__e+a34-cst=10+✓` means that place 2 is r, place 5 is e, a is in the word but not at places 3 and
4, c, s and t are not in the word, ten answers or more remain, and the guess fits all clues (x: it
does not). A letter is repeated for each certain copy; `!` says that there are no more. One of three
signs means an unknown place.
"""

from collections import Counter
from string import ascii_lowercase

from wordle_rl.game.knowledge import Knowledge, LetterFacts, letter_facts
from wordle_rl.game.players import pick
from wordle_rl.game.rules import State
from wordle_rl.prompts.parser import CLOSE_THINK, OPEN_THINK
from wordle_rl.words.lists import WORD_LENGTH

_UNKNOWN = "_.?"  # signs of an unknown place


class Reasoning:
    """Writes the thought before a guess."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.words = knowledge.words.answers
        self._knowledge = knowledge

    def __call__(self, state: State, guess: str | None, uniform: float) -> str:
        """A think block and the line break behind it. uniform: in [0, 1), chooses the wording."""
        blocks = self.wordings(state, guess)
        return blocks[pick(uniform, len(blocks))]

    def wordings(self, state: State, guess: str | None) -> list[str]:
        """All think blocks that might be drawn, each equally likely.

        guess: None does not say whether the guess fits.
        """
        fits = guess and ("✓" if self._knowledge.is_consistent(guess, state) else "x")
        left = int(self._knowledge.candidates(state).sum())
        return _blocks(letter_facts(state.clues), f"={_roughly(left)}{fits or ''}")

    def longest(self) -> list[str]:
        """Thoughts longer than any real state needs, one per wording."""
        facts = LetterFacts(
            placed=dict(enumerate("vwxy")),
            excluded={place: frozenset("abcde") for place in range(WORD_LENGTH - 1)},
            at_least=dict.fromkeys("abcde", 1),
            at_most={**dict.fromkeys("abcde", 1), **dict.fromkeys(ascii_lowercase[5:], 0)},
        )
        return _blocks(facts, f"={_roughly(len(self.words))}✓")


def _blocks(facts: LetterFacts, end: str) -> list[str]:
    placed, barred, known = Counter(facts.placed.values()), facts.barred, ""
    for letter, copies in facts.at_least.items():
        exact, elsewhere = letter in facts.at_most, copies > placed[letter]
        if exact or elsewhere:  # else the known places say everything about it
            where = "".join(map(str, barred.get(letter, ()))) if elsewhere else ""
            known += f"+{letter * copies}{where}{'!' * exact}"
    absent = f"-{''.join(facts.absent)}" if facts.absent else ""
    patterns = (
        "".join(facts.placed.get(place, unknown) for place in range(WORD_LENGTH))
        for unknown in _UNKNOWN
    )
    return [f"{OPEN_THINK}{pattern}{known}{absent}{end}{CLOSE_THINK}\n" for pattern in patterns]


def _roughly(left: int) -> str:
    """The number below ten, else the greatest power of ten below it: 7, 10+, 100+, 1000+."""
    return str(left) if left < 10 else f"{10 ** (len(str(left)) - 1)}+"
