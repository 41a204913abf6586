"""The text that a player gets: the rules once, then feedback for each turn, in one of five styles.

`symbols` gives five marks, `letters` a mark behind each letter, `places` also each letter's place,
`state` the whole state in plain English, `spelled` the whole state with letters apart, as the
answers then are too. A style is only text; chat templates and tokens come later
(wordle_rl.rollouts.chat). The texts are made of fixed phrases, so that the embedded
model's tokenizer can hold each as one token.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from wordle_rl.game.knowledge import LetterFacts, letter_facts
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Clue, PlayedTurn, Rules, State, TurnKind
from wordle_rl.prompts.parser import Parsed, parse, parse_spelled
from wordle_rl.words.lists import WORD_LENGTH

TASK = "You are playing Wordle: find the secret five-letter English word in six guesses.\n"
NUMBERS = (
    *("one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
ANSWER = "Answer with <guess>word</guess>."
ANSWER_THINKING = "Think in <think>...</think>, then answer with <guess>word</guess>."
ANSWER_SPELLED = "Answer with the letters apart, as in <guess> W O R D S</guess>."
SPELLED_THINKING = "Think in <think>...</think>, then answer with <guess> W O R D S</guess>."
SHOWN = (
    "Each answer is the tag <guess>, a new five-letter word{}, the tag </guess>, and nothing else. "
    "The answers of another game were:"
)
SHOWN_THINKING = (
    "Each answer begins with your thoughts between the tags <think> and </think>. Behind them are "
    "the tag <guess>, a new five-letter word{}, and the tag </guess>. The answers of another game "
    "ended with:"
)
SHOWN_WORDS = ("house", "plant", "brick")  # training secrets all
CALL = "Guess by calling the tool."
CALL_THINKING = "Think in <think>...</think>, then guess by calling the tool."
_MARKS = "✓ it is in its place, - it is in the word but elsewhere, x it is not in the word.\n"
MARKS_LEGEND = f"After each guess you see a mark for each letter: {_MARKS}"
PLACES_LEGEND = f"After each guess you see its letters, each with its place and a mark: {_MARKS}"
STATE_LEGEND = "After each guess you are told what is known about the secret word.\n"
SPELLED_LEGEND = (
    "After each guess you see what is known. Not: letters that are not in the word. Has: letters "
    "in the word, each with places where it is not. Word: letters in their places.\n"
)
FIRST = "Make your first guess."
NEXT = "Make your next guess."
QUESTION = "What is your next guess?"
PLACED = "Known places: "
MISPLACED = "In the word, not at the places given: "
HOW_OFTEN = "How often in the word: "
TIMES = ("", "once", "twice", "three times", "four times", "five times")
ABSENT = "Not in the word: "
GUESSED = "Guesses so far: "
NOTHING_KNOWN = "Nothing is known yet.\n"
REFUSALS = {
    TurnKind.NOT_A_WORD: "That word is not in the word list.",
    TurnKind.BREAKS_HARD_MODE: "Hard mode: a guess must use every clue.",
    TurnKind.UNPARSABLE: "No guess could be read.",
}
# A new phrase would change the ids of all tokens behind it, so later texts (HOW_OFTEN, other
# numbers of guesses) are not in this list.
PHRASES = (
    TASK,
    ANSWER,
    ANSWER_THINKING,
    MARKS_LEGEND,
    STATE_LEGEND,
    FIRST,
    NEXT,
    PLACED,
    MISPLACED,
    ABSENT,
    GUESSED,
    NOTHING_KNOWN,
    *REFUSALS.values(),
    " -> ",
    "(✓)",
    "(-)",
    "(x)",
    "(✓) ",
    "(-) ",
    "(x) ",
    ", ",
)
_ORIGINAL = Rules()


@dataclass(frozen=True, kw_only=True)
class PromptStyle(ABC):
    """Turns states into text."""

    think: bool = False  # ask for reasoning before the guess
    # How the prompt asks for an answer. brief: by its form, which many models copy as it is.
    # shown: by the answers of another game. A model is asked as it was taught.
    wording: Literal["brief", "shown"] = "brief"
    game: Rules = _ORIGINAL  # the rules in the text; filled in by the builder
    name: ClassVar[str]
    legend: ClassVar[str]  # how to read feedback
    spelled: ClassVar[bool] = False  # answers have their letters apart: <guess> C R A N E</guess>

    @property
    def rules(self) -> str:
        """What the game is, how many guesses it has, and how to read feedback."""
        limit = self.game.max_turns
        number = NUMBERS[limit - 1] if limit <= len(NUMBERS) else limit
        guesses = f"{number} guesses" if limit > 1 else f"{number} guess"
        hard_mode = f"{REFUSALS[TurnKind.BREAKS_HARD_MODE]}\n" if self.game.hard_mode else ""
        return TASK.replace("six guesses", guesses) + hard_mode + self.legend

    @property
    def system(self) -> str:
        """The rules and the format of an answer that is text."""
        if self.wording == "shown":
            ask = (SHOWN_THINKING if self.think else SHOWN).format(
                " with its letters apart" * self.spelled
            )
            return "\n".join([self.rules + ask, *map(self.write, SHOWN_WORDS)])
        if self.spelled:
            return self.rules + (SPELLED_THINKING if self.think else ANSWER_SPELLED)
        return self.rules + (ANSWER_THINKING if self.think else ANSWER)

    def write(self, guess: str) -> str:
        """The answer that makes a guess, as the prompt asks for it."""
        return guess_text("".join(f" {a}" for a in guess.upper()) if self.spelled else guess)

    def parse(self, text: str) -> Parsed:
        """Read the guess from an answer that is text."""
        return parse_spelled(text) if self.spelled else parse(text)

    @abstractmethod
    def opening(self, state: State) -> str:
        """The first message of a game, whose state may already have clues."""

    @abstractmethod
    def feedback(self, turn: PlayedTurn, state: State) -> str:
        """The message after a turn. state: the one after it."""


@dataclass(frozen=True, kw_only=True)
class Symbols(PromptStyle):
    """`x-✓xx` after each guess."""

    name = "symbols"
    legend = MARKS_LEGEND

    def opening(self, state: State) -> str:
        lines = [self._with_guess(clue) for clue in state.clues]
        return "\n".join([*lines, NEXT if lines else FIRST])

    def feedback(self, turn: PlayedTurn, state: State) -> str:
        return REFUSALS.get(turn.kind) or self._after_guess(state.clues[-1])

    def _with_guess(self, clue: Clue) -> str:
        return f"{clue.guess} -> {self._after_guess(clue)}"

    def _after_guess(self, clue: Clue) -> str:
        return clue.marks


@dataclass(frozen=True, kw_only=True)
class Letters(Symbols):
    """`CRANE -> C(x) R(-) A(✓) N(x) E(x)` after each guess."""

    name = "letters"

    def _with_guess(self, clue: Clue) -> str:
        word = clue.guess.upper()
        parts = (f"{letter}({mark})" for letter, mark in zip(word, clue.marks, strict=True))
        return f"{word} -> {' '.join(parts)}"

    _after_guess = _with_guess


@dataclass(frozen=True, kw_only=True)
class Places(Symbols):
    """`c1x r2- a3✓ n4x e5x` after each guess."""

    name = "places"
    legend = PLACES_LEGEND

    def _after_guess(self, clue: Clue) -> str:
        pairs = zip(clue.guess, clue.marks, strict=True)
        return " ".join(f"{letter}{place}{mark}" for place, (letter, mark) in enumerate(pairs, 1))


@dataclass(frozen=True, kw_only=True)
class WholeState(PromptStyle):
    """The whole state in plain English.

    It gives known places, letters with excluded places, known counts of letters, and absent
    letters. A word fits this text exactly when it fits the clues.
    """

    name = "state"
    legend = STATE_LEGEND

    def opening(self, state: State) -> str:
        if not state.clues:
            return NOTHING_KNOWN + FIRST
        facts = letter_facts(state.clues)
        pairs = sorted(facts.barred.items())
        rows = [
            (PLACED, [f"{place + 1} {letter}" for place, letter in sorted(facts.placed.items())]),
            (MISPLACED, [f"{letter} {' '.join(map(str, places))}" for letter, places in pairs]),
            (HOW_OFTEN, _how_often(facts)),
            (ABSENT, sorted(facts.absent)),
            (GUESSED, list(state.guesses)),
        ]
        return "".join(head + ", ".join(items) + "\n" for head, items in rows if items) + NEXT

    def feedback(self, turn: PlayedTurn, state: State) -> str:
        refusal = REFUSALS.get(turn.kind)
        return (refusal + "\n" if refusal else "") + self.opening(state)


@dataclass(frozen=True, kw_only=True)
class Spelled(WholeState):
    """The whole state in few tokens, with each letter apart.

    A tokenizer of words and parts of words hides letters from the model. Here each letter is a
    token of its own, and the same one in prompts and answers. As complete as WholeState.
    """

    name = "spelled"
    legend = SPELLED_LEGEND
    spelled = True

    def opening(self, state: State) -> str:
        facts = letter_facts(state.clues)
        pairs = sorted(facts.barred.items())
        rows = [
            ("Not:", sorted(facts.absent)),
            ("Has:", [letter + "".join(map(str, places)) for letter, places in pairs]),
            ("Count:", _how_often(facts)),
            # Last, so that each letter of the answer is equally far behind its place here.
            ("Word:", [facts.placed.get(place, "_") for place in range(WORD_LENGTH)]),
        ]
        lines = [
            " ".join([head, *(item[0].upper() + item[1:] for item in items)])
            for head, items in rows
            if items
        ]
        if self.wording == "shown":
            lines.append(QUESTION)
        return "\n".join(lines)


def _how_often(facts: LetterFacts) -> list[str]:
    """Counts of letters that do not follow from the other lines."""
    counts = Counter(facts.placed.values())
    lines = []
    for letter, copies in sorted(facts.at_least.items()):
        if letter in facts.at_most:
            lines.append(f"{letter} exactly {TIMES[copies]}")
        elif copies > max(counts[letter], 1):
            lines.append(f"{letter} at least {TIMES[copies]}")
    return lines
