"""Writes a teacher's thought before its guess: true statements about the state, in varied words.

A thought gives the known places, letters known to be elsewhere, absent letters, the number of
answers that remain, and the reason for the guess. It does not name the guess, so the same
thought can precede every guess that the teacher might make in a state. Letters come in the order in
which they were found, so most of a thought repeats the one before it.

`notes` are made for character-level models: `_r__e+a34-cst=10+✓` means that place 2 is r, place 5
is e, a is in the word but not at places 3 and 4, c, s and t are not in the word, ten answers or
more remain, and the guess fits all clues (x: it does not). A letter is repeated for each certain
copy; `!` says that there are no more. `brief` is a line of English, `full` is whole sentences.
"""

from __future__ import annotations

import string
from collections import Counter
from dataclasses import dataclass

from wordle_rl.game.knowledge import Knowledge, letter_facts
from wordle_rl.game.players import pick
from wordle_rl.game.rules import State
from wordle_rl.prompts.parser import CLOSE_THINK, OPEN_THINK
from wordle_rl.words.lists import WORD_LENGTH


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
    fits: bool | None  # whether the guess fits all clues; None gives no reason
    rest: float = 0.0  # mean number of answers left after a guess that does not fit


@dataclass(frozen=True, kw_only=True, slots=True)
class Wording:
    """One way to write a View in English."""

    nothing: str
    placed: str  # {pattern} as _r__e, {places} as r at 2, e at 5
    known: str  # {letters}
    letter: str  # {letter} with its copies, {barred}
    barred: str  # {places}
    either: str  # between places
    absent: str  # {letters}
    left: str  # {left}
    last: str  # of one answer
    fits: str
    tests: str  # {rest}
    apart: str  # between statements
    between: str = ", "  # letters known to be in the word


_UNKNOWN = "_.?"  # signs of an unknown place in notes
_BRIEF = (
    Wording(
        nothing="nothing known", placed="{pattern}", known="has {letters}",
        letter="{letter}{barred}", barred=" (not {places})", either=", ",
        absent="no {letters}", left="{left} fit", last="1 fits", fits="taking such a word",
        tests="testing, leaves about {rest}", apart="; ",
    ),
    Wording(
        nothing="no clues yet", placed="places {pattern}", known="with {letters}",
        letter="{letter}{barred}", barred=" not at {places}", either="/",
        absent="without {letters}", left="{left} left", last="1 left", fits="a guess that fits",
        tests="a test to leave about {rest}", apart=" | ",
    ),
    Wording(
        nothing="Empty board", placed="So far {pattern}", known="It has {letters}",
        letter="{letter}{barred}", barred=" (never {places})", either=" ", absent="Never {letters}",
        left="{left} words", last="1 word", fits="My guess fits",
        tests="My guess cannot be it but leaves about {rest}", apart=". ",
    ),
)  # fmt: skip
_FULL = (
    Wording(
        nothing="Nothing is known yet.", placed="I know {places}.", known="{letters}",
        letter="The word has {letter}{barred}.", barred=", but not in place {places}",
        either=" or ", absent="It does not have {letters}.", left="{left} words are left.",
        last="Only 1 word is left.", fits="I guess one that fits every clue.",
        tests="My guess ignores a clue, but leaves about {rest} words.", apart=" ", between=" ",
    ),
    Wording(
        nothing="There are no clues yet.", placed="These places are settled: {places}.",
        known="{letters}", letter="There must be {letter}{barred}.",
        barred=", not in place {places}", either=" or ", absent="These letters are out: {letters}.",
        left="That leaves {left} answers.", last="That leaves 1 answer.",
        fits="My guess agrees with all clues.",
        tests="My guess cannot be the answer, but about {rest} would remain.", apart=" ",
        between=" ",
    ),
    Wording(
        nothing="The board is empty.", placed="So far there is {places}.", known="{letters}",
        letter="I need {letter}{barred}.", barred=" outside place {places}", either=" and ",
        absent="I must avoid {letters}.", left="{left} answers are possible.",
        last="1 answer is possible.", fits="I try a word that is in line with the clues.",
        tests="I try a word against the clues that leaves about {rest} answers.", apart=" ",
        between=" ",
    ),
)  # fmt: skip


class Reasoning:
    """Writes the thought before a guess; length is notes, brief or full."""

    def __init__(self, knowledge: Knowledge, length: str) -> None:
        self.length = length
        self.words = knowledge.words.answers
        self._knowledge = knowledge

    def __call__(self, state: State, guess: str | None, uniform: float) -> str:
        """The think block and the line break behind it.

        guess: None gives no reason for the guess. uniform: in [0, 1), chooses the wording.
        """
        blocks = self.wordings(state, guess)
        return blocks[pick(uniform, len(blocks))]

    def wordings(self, state: State, guess: str | None) -> list[str]:
        """All think blocks that might be drawn, each equally likely."""
        return self._blocks(self._view(state, guess))

    def longest(self) -> list[str]:
        """Thoughts longer than any real state needs, one per wording."""
        known = (
            Known(letter=letter, copies=1, exact=True, barred=(1, 2, 3, 4))
            for letter in string.ascii_lowercase[:WORD_LENGTH]
        )
        view = View(
            placed=dict(enumerate("vwxy", 1)),
            known=tuple(known),
            absent=string.ascii_lowercase[WORD_LENGTH:],
            left=len(self.words),
            fits=False,
            rest=float(len(self.words)),
        )
        return self._blocks(view)

    def _blocks(self, view: View) -> list[str]:
        if self.length == "notes":
            thoughts = [_notes(view, unknown) for unknown in _UNKNOWN]
        else:
            wordings = _BRIEF if self.length == "brief" else _FULL
            thoughts = [_english(view, wording) for wording in wordings]
        return [f"{OPEN_THINK}{thought}{CLOSE_THINK}\n" for thought in thoughts]

    def _view(self, state: State, guess: str | None) -> View:
        facts = letter_facts(state.clues)
        mask = self._knowledge.candidates(state)
        fits = None if guess is None else self._knowledge.is_consistent(guess, state)
        rest = self._knowledge.outlook(guess, mask)[1] if guess and not fits else 0.0
        placed = Counter(facts.placed.values())
        known = []
        for letter, copies in facts.at_least.items():
            exact, elsewhere = letter in facts.at_most, copies > placed[letter]
            if exact or elsewhere:
                barred = [p + 1 for p, letters in facts.excluded.items() if letter in letters]
                known.append(
                    Known(
                        letter=letter,
                        copies=copies,
                        exact=exact,
                        barred=tuple(barred) if elsewhere else (),
                    )
                )
        return View(
            placed={place + 1: letter for place, letter in sorted(facts.placed.items())},
            known=tuple(known),
            absent="".join(letter for letter, most in facts.at_most.items() if most == 0),
            left=int(mask.sum()),
            fits=fits,
            rest=rest,
        )


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


def _english(view: View, wording: Wording) -> str:
    said = []
    if not (view.placed or view.known or view.absent):
        said.append(wording.nothing)
    if view.placed:
        places = ", ".join(f"{letter} at {place}" for place, letter in view.placed.items())
        said.append(wording.placed.format(pattern=_pattern(view, "_"), places=places))
    if view.known:
        letters = wording.between.join(_letter(known, wording) for known in view.known)
        said.append(wording.known.format(letters=letters))
    if view.absent:
        said.append(wording.absent.format(letters=", ".join(view.absent)))
    said.append(wording.last if view.left == 1 else wording.left.format(left=view.left))
    if view.fits is not None:
        said.append(wording.fits if view.fits else wording.tests.format(rest=f"{view.rest:.1f}"))
    return wording.apart.join(said)


def _letter(known: Known, wording: Wording) -> str:
    letter = known.letter
    if known.exact:
        letter = f"exactly {known.copies} {letter}"
    elif known.copies > 1:
        letter = f"at least {known.copies} {letter}"
    places = wording.either.join(map(str, known.barred))
    barred = wording.barred.format(places=places) if known.barred else ""
    return wording.letter.format(letter=letter, barred=barred)
