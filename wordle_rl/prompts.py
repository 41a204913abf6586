"""What a player is told: the rules once, then the feedback of each turn, in one of three styles.

`symbols` gives five marks, `letters` one mark behind each letter, `state` the whole state in plain
English. A style is text only; chat templates and tokens come later (wordle_rl.chat). The texts are
built from phrases, so that the embedded model's tokenizer can hold each of them as one token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wordle_rl.game import PlayedTurn, State, TurnKind

TASK = "You are playing Wordle: find the secret five-letter English word in six guesses.\n"
ANSWER = "Answer with <guess>word</guess>."
ANSWER_THINKING = "Think in <think>...</think>, then answer with <guess>word</guess>."
MARKS_LEGEND = (
    "After each guess you see a mark for each letter: ✓ it is in its place, "
    "- it is in the word but elsewhere, x it is not in the word.\n"
)
STATE_LEGEND = "After each guess you are told what is known about the secret word.\n"
FIRST = "Make your first guess."
NEXT = "Make your next guess."
PLACED = "Known places: "
MISPLACED = "In the word, not at the places given: "
ABSENT = "Not in the word: "
GUESSED = "Guesses so far: "
NOTHING_KNOWN = "Nothing is known yet.\n"
REFUSALS = {
    TurnKind.NOT_A_WORD: "That word is not in the word list.",
    TurnKind.BREAKS_HARD_MODE: "Hard mode: a guess must use every clue.",
    TurnKind.UNPARSABLE: "No guess could be read.",
}
PHRASES = (
    TASK, ANSWER, ANSWER_THINKING, MARKS_LEGEND, STATE_LEGEND, FIRST, NEXT, PLACED, MISPLACED,
    ABSENT, GUESSED, NOTHING_KNOWN, *REFUSALS.values(), " -> ", "(✓)", "(-)", "(x)",
    "(✓) ", "(-) ", "(x) ", ", ",
)  # fmt: skip


class PromptStyle(Protocol):
    """Turns states into text."""

    @property
    def name(self) -> str: ...

    @property
    def system(self) -> str:
        """The rules and the answer format."""
        ...

    def opening(self, state: State) -> str:
        """The first message about a game, whose state may already hold clues."""
        ...

    def feedback(self, turn: PlayedTurn, state: State) -> str:
        """The message after a turn; state is the one after it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """`x-✓xx` after each guess."""

    think: bool = False  # ask for reasoning before the guess
    name = "symbols"

    @property
    def system(self) -> str:
        return TASK + MARKS_LEGEND + (ANSWER_THINKING if self.think else ANSWER)

    def opening(self, state: State) -> str:
        lines = [f"{clue.guess} -> {clue.marks}" for clue in state.clues]
        return "\n".join([*lines, NEXT if lines else FIRST])

    def feedback(self, turn: PlayedTurn, state: State) -> str:
        return REFUSALS.get(turn.kind) or state.clues[-1].marks


@dataclass(frozen=True, kw_only=True)
class Letters:
    """`CRANE -> C(x) R(-) A(✓) N(x) E(x)` after each guess."""

    think: bool = False  # ask for reasoning before the guess
    name = "letters"

    @property
    def system(self) -> str:
        return TASK + MARKS_LEGEND + (ANSWER_THINKING if self.think else ANSWER)

    def opening(self, state: State) -> str:
        lines = [self._line(clue.guess, clue.marks) for clue in state.clues]
        return "\n".join([*lines, NEXT if lines else FIRST])

    def feedback(self, turn: PlayedTurn, state: State) -> str:
        if turn.kind in REFUSALS:
            return REFUSALS[turn.kind]
        clue = state.clues[-1]
        return self._line(clue.guess, clue.marks)

    @staticmethod
    def _line(guess: str, marks: str) -> str:
        word = guess.upper()
        return f"{word} -> " + " ".join(f"{c}({m})" for c, m in zip(word, marks, strict=True))


@dataclass(frozen=True, kw_only=True)
class WholeState:
    """The whole state in plain English: places, letters with excluded places, absent letters."""

    think: bool = False  # ask for reasoning before the guess
    name = "state"

    @property
    def system(self) -> str:
        return TASK + STATE_LEGEND + (ANSWER_THINKING if self.think else ANSWER)

    def opening(self, state: State) -> str:
        if not state.clues:
            return NOTHING_KNOWN + FIRST
        placed: dict[int, str] = {}
        misplaced: dict[str, set[int]] = {}
        seen_absent: set[str] = set()
        for clue in state.clues:
            for place, (letter, mark) in enumerate(zip(clue.guess, clue.marks, strict=True), 1):
                if mark == "✓":
                    placed[place] = letter
                elif mark == "-":
                    misplaced.setdefault(letter, set()).add(place)
                else:
                    seen_absent.add(letter)
                    # A surplus copy of a letter that the word has: only this place is excluded.
                    if any(
                        g == letter and m != "x"
                        for g, m in zip(clue.guess, clue.marks, strict=True)
                    ):
                        misplaced.setdefault(letter, set()).add(place)
        absent = sorted(seen_absent - set(misplaced) - set(placed.values()))
        rows = [
            (PLACED, [f"{place} {letter}" for place, letter in sorted(placed.items())]),
            (
                MISPLACED,
                [
                    f"{letter} {' '.join(map(str, sorted(places)))}"
                    for letter, places in sorted(misplaced.items())
                ],
            ),
            (ABSENT, absent),
            (GUESSED, list(state.guesses)),
        ]
        return "".join(head + ", ".join(items) + "\n" for head, items in rows if items) + NEXT

    def feedback(self, turn: PlayedTurn, state: State) -> str:
        refusal = REFUSALS.get(turn.kind)
        return (refusal + "\n" if refusal else "") + self.opening(state)
