"""Writes a teacher's thought before its guess: true statements about the state.

A thought gives the known places, letters known to be elsewhere, absent letters, the number of
answers that remain, and the reason for the guess. It does not name the guess, so the same
thought can precede every guess that the teacher might make in a state. Letters come in the order in
which they were found, so most of a thought repeats the one before it.

`notes` are made for character-level models: `_r__e+a34-cst=10+✓` means that place 2 is r, place 5
is e, a is in the word but not at places 3 and 4, c, s and t are not in the word, ten answers or
more remain, and the guess fits all clues (x: it does not). A letter is repeated for each certain
copy; `!` says that there are no more. One of three signs means an unknown place. `brief` says the
same in a line of English.
"""

from collections import Counter
from dataclasses import dataclass
from string import ascii_lowercase

from wordle_rl.game.knowledge import Knowledge, letter_facts
from wordle_rl.game.players import pick
from wordle_rl.game.rules import State
from wordle_rl.prompts.parser import CLOSE_THINK, OPEN_THINK
from wordle_rl.words.lists import WORD_LENGTH

_UNKNOWN = "_.?"  # signs of an unknown place in notes


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A letter of the secret about which the known places do not say everything."""

    letter: str
    copies: int  # fewest that the secret can have
    exact: bool  # whether the secret has no more
    barred: tuple[int, ...]  # places 1..5 where the letter is not


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """The content of a thought about a state and a guess."""

    placed: dict[int, str]  # place 1..5 -> letter
    known: tuple[Known, ...]
    absent: str
    left: int  # answers that fit all clues
    fits: bool | None = None  # whether the guess fits all clues; None gives no reason
    rest: float = 0.0  # mean number of answers left after a guess that does not fit


class Reasoning:
    """Writes the thought before a guess; length is notes or brief."""

    def __init__(self, knowledge: Knowledge, length: str) -> None:
        self.length = length
        self.words = knowledge.words.answers
        self._knowledge = knowledge

    def __call__(self, state: State, guess: str | None, uniform: float) -> str:
        """A think block and the line break behind it. uniform: in [0, 1), chooses the wording."""
        blocks = self.wordings(state, guess)
        return blocks[pick(uniform, len(blocks))]

    def wordings(self, state: State, guess: str | None) -> list[str]:
        """All think blocks that might be drawn, each equally likely.

        guess: None gives no reason for the guess.
        """
        facts, mask = letter_facts(state.clues), self._knowledge.candidates(state)
        fits = None if guess is None else self._knowledge.is_consistent(guess, state)
        rest = self._knowledge.outlook(guess, mask)[1] if guess and not fits else 0.0
        placed, barred = Counter(facts.placed.values()), facts.barred
        known = [
            Known(
                letter=letter, copies=copies, exact=letter in facts.at_most,
                barred=tuple(barred.get(letter, ())) if copies > placed[letter] else (),
            )
            for letter, copies in facts.at_least.items()
            if letter in facts.at_most or copies > placed[letter]
        ]  # fmt: skip
        view = View(
            placed={place + 1: letter for place, letter in facts.placed.items()},
            known=tuple(known), absent="".join(facts.absent), left=int(mask.sum()), fits=fits,
            rest=rest,
        )  # fmt: skip
        return self._blocks(view)

    def longest(self) -> list[str]:
        """Thoughts longer than any real state needs, one per wording."""
        known = (Known(letter=a, copies=1, exact=True, barred=(1, 2, 3, 4)) for a in "abcde")
        view = View(
            placed=dict(enumerate("vwxy", 1)), known=tuple(known), absent=ascii_lowercase[5:],
            left=len(self.words), fits=False, rest=float(len(self.words)),
        )  # fmt: skip
        return self._blocks(view)

    def _blocks(self, view: View) -> list[str]:
        notes = self.length == "notes"
        thoughts = [_notes(view, unknown) for unknown in _UNKNOWN] if notes else [_english(view)]
        return [f"{OPEN_THINK}{thought}{CLOSE_THINK}\n" for thought in thoughts]


def _pattern(view: View, unknown: str) -> str:
    return "".join(view.placed.get(place, unknown) for place in range(1, WORD_LENGTH + 1))


def _notes(view: View, unknown: str) -> str:
    known = "".join(
        f"+{k.letter * k.copies}{''.join(map(str, k.barred))}{'!' * k.exact}" for k in view.known
    )
    absent = f"-{view.absent}" if view.absent else ""
    why = {None: "", True: "✓", False: "x"}[view.fits]
    return f"{_pattern(view, unknown)}{known}{absent}={_roughly(view.left)}{why}"


def _roughly(left: int) -> str:
    """The number below ten, else the greatest power of ten below it: 7, 10+, 100+, 1000+."""
    return str(left) if left < 10 else f"{10 ** (len(str(left)) - 1)}+"


def _english(view: View) -> str:
    said = []
    if not (view.placed or view.known or view.absent):
        said.append("nothing known")
    if view.placed:
        said.append(_pattern(view, "_"))
    if view.known:
        said.append("has " + ", ".join(map(_letter, view.known)))
    if view.absent:
        said.append("no " + ", ".join(view.absent))
    said.append("1 fits" if view.left == 1 else f"{view.left} fit")
    if view.fits is not None:
        tests = f"testing, leaves about {view.rest:.1f}"
        said.append("taking such a word" if view.fits else tests)
    return "; ".join(said)


def _letter(known: Known) -> str:
    letter = known.letter
    if known.exact:
        letter = f"exactly {known.copies} {letter}"
    elif known.copies > 1:
        letter = f"at least {known.copies} {letter}"
    return letter + (f" (not {', '.join(map(str, known.barred))})" if known.barred else "")
