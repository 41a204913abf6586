"""The rules of Wordle: feedback, which guesses are legal, and when a game ends.

feedback_code() decides every mark, repeated letters included. This is plain Python for single
games; feedback_table.py applies the same rule to whole word lists at once.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from wordle_rl.runs.instantiate import Within
from wordle_rl.words.lists import WORD_LENGTH

MARKS = "x-✓"  # index = base-3 digit: letter absent, letter elsewhere, letter in place
ALL_PLACED = 3**WORD_LENGTH - 1  # the feedback code of a win, 242

InvalidPolicy = Literal["accept", "lose_turn", "end_game", "retry"]
UnparsablePolicy = Literal["lose_turn", "end_game", "retry"]


def feedback_code(guess: str, secret: str) -> int:
    """Feedback of the real game as a base-3 number 0..242, first letter most significant.

    A letter that the guess has more often than the secret gets only as many marks as the secret
    has copies: letters in place first, then from the left. Source: the New York Times game's rules.
    """
    counts = Counter(s for g, s in zip(guess, secret, strict=True) if g != s)
    code = 0
    for g, s in zip(guess, secret, strict=True):
        digit = 0
        if g == s:
            digit = 2
        elif counts[g] > 0:
            counts[g] -= 1
            digit = 1
        code = code * 3 + digit
    return code


def marks_of(code: int) -> str:
    """The five marks of a feedback code 0..242, e.g. 242 -> ✓✓✓✓✓."""
    return "".join(MARKS[code // 3**i % 3] for i in reversed(range(WORD_LENGTH)))


def marks(guess: str, secret: str) -> str:
    """Five of ✓ (in place), - (elsewhere), x (absent) for a guess, repeated letters included.

    Raises ValueError unless both words have five letters.
    """
    if not len(guess) == len(secret) == WORD_LENGTH:
        raise ValueError(
            f"both words must have {WORD_LENGTH} letters, not {guess!r} and {secret!r}"
        )
    return marks_of(feedback_code(guess.lower(), secret.lower()))


@dataclass(frozen=True, slots=True)
class Clue:
    """A guess and its feedback."""

    guess: str  # five lower-case letters
    feedback: int  # code 0..242

    @property
    def marks(self) -> str:
        return marks_of(self.feedback)


@dataclass(frozen=True, slots=True)
class State:
    """What a player knows before a turn."""

    clues: tuple[Clue, ...] = ()  # guesses that got feedback, oldest first
    turn: int = 0  # turns already used, lost ones included
    max_turns: int = 6

    @property
    def guesses(self) -> tuple[str, ...]:
        return tuple(clue.guess for clue in self.clues)


class TurnKind(StrEnum):
    """What an answer turned out to be."""

    ACCEPTED = "accepted"  # it got feedback
    NOT_A_WORD = "not_a_word"  # five letters that are not in the list of allowed guesses
    BREAKS_HARD_MODE = "breaks_hard_mode"  # ignores a clue, which hard mode forbids
    UNPARSABLE = "unparsable"  # no guess could be read


class GameStatus(StrEnum):
    PLAYING = "playing"
    WON = "won"
    LOST = "lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedTurn:
    """One answer of a player and its result."""

    state: State  # before the answer
    text: str  # the answer as written
    thought: str = ""  # the beginning of the text, up to the end of its last think block
    guess: str | None  # lower-case letters, or None when none could be read
    reason: str | None  # why no guess could be read, None when one was
    kind: TurnKind
    feedback: int | None  # code 0..242, None unless accepted
    tokens: int = 0  # length of the answer in sampled tokens, 0 for scripted players

    @property
    def won(self) -> bool:
        return self.feedback == ALL_PLACED

    @property
    def repeat(self) -> bool:
        """Whether this guess already got feedback in the same game."""
        return self.guess is not None and self.guess in self.state.guesses

    @property
    def violation(self) -> bool:
        """Whether it got no feedback (no guess, non-word, breaks hard mode) or repeats a guess."""
        return self.kind is not TurnKind.ACCEPTED or self.repeat


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which guesses are legal and what the others cost, in training as in evaluation.

    invalid decides about non-words and, in hard mode, about guesses that ignore a clue. unparsable
    decides about answers without a guess. accept gives feedback on any five letters. lose_turn uses
    up a turn without feedback. end_game loses at once. retry asks again without using a turn.
    """

    max_turns: Annotated[int, Within(1, 100)] = 6
    hard_mode: bool = False
    invalid: InvalidPolicy = "lose_turn"
    unparsable: UnparsablePolicy = "lose_turn"
    max_retries: Annotated[int, Within(0, 100)] = 3

    def __post_init__(self) -> None:
        if self.hard_mode and self.invalid == "accept":
            raise ValueError(
                "rules.hard_mode=true forbids guesses, so rules.invalid=accept cannot be"
            )

    @property
    def most_answers(self) -> int:
        """The most answers of a game, those that are asked for again included."""
        has_retry = "retry" in (self.invalid, self.unparsable)
        return self.max_turns + has_retry * self.max_retries


def breaks_hard_mode(guess: str, clues: tuple[Clue, ...]) -> bool:
    """Whether a guess drops a placed letter, or holds fewer of a letter than the clues revealed."""
    for clue in clues:
        triples = [*zip(clue.guess, clue.marks, guess, strict=True)]
        if any(mark == "✓" and now != letter for letter, mark, now in triples):
            return True
        if Counter(letter for letter, mark, _ in triples if mark != "x") - Counter(guess):
            return True
    return False


@dataclass(slots=True)
class Game:
    """One game in progress; the only owner of its turns."""

    secret: str
    allowed: Container[str]  # legal guesses, lower case
    rules: Rules = field(default_factory=Rules)
    turns: list[PlayedTurn] = field(default_factory=list)
    status: GameStatus = GameStatus.PLAYING
    state: State = State()
    retries: int = 0  # answers that had to be repeated
    context_full: bool = False  # whether the model's context cut it off

    def __post_init__(self) -> None:
        if self.state == State():
            self.state = State(max_turns=self.rules.max_turns)

    @property
    def won(self) -> bool:
        return self.status is GameStatus.WON

    @property
    def lost(self) -> bool:
        """Whether the game is over and was not won."""
        return self.status is GameStatus.LOST

    def play(
        self,
        guess: str | None,
        *,
        text: str = "",
        thought: str = "",
        reason: str | None = None,
        tokens: int = 0,
    ) -> PlayedTurn:
        """Play one answer: its guess, or None and the reason why no guess could be read.

        Returns the turn, which is also appended to turns. Raises ValueError on a finished game.
        """
        if self.status is not GameStatus.PLAYING:
            raise ValueError(f"the game is over ({self.status})")
        kind = self._kind(guess)
        code = feedback_code(guess, self.secret) if guess and kind is TurnKind.ACCEPTED else None
        turn = PlayedTurn(
            state=self.state,
            text=text,
            thought=thought,
            guess=guess,
            reason=reason,
            kind=kind,
            feedback=code,
            tokens=tokens,
        )
        self.turns.append(turn)
        self._advance(turn)
        return turn

    @property
    def out_of_context(self) -> bool:
        """Whether it was lost because the model's context had no room for more."""
        return self.context_full and self.lost

    def forfeit(self, *, context_full: bool = False) -> None:
        """Lose a game that cannot continue, because its context is full or its player gave up."""
        self.status, self.context_full = GameStatus.LOST, context_full

    def _kind(self, guess: str | None) -> TurnKind:
        if guess is None:
            return TurnKind.UNPARSABLE
        if self.rules.invalid != "accept" and guess not in self.allowed:
            return TurnKind.NOT_A_WORD
        if self.rules.hard_mode and breaks_hard_mode(guess, self.state.clues):
            return TurnKind.BREAKS_HARD_MODE
        return TurnKind.ACCEPTED

    def _advance(self, turn: PlayedTurn) -> None:
        clues, turns_used = self.state.clues, self.state.turn + 1
        if turn.guess is not None and turn.feedback is not None:
            clues = (*clues, Clue(turn.guess, turn.feedback))
        else:
            unparsable = turn.kind is TurnKind.UNPARSABLE
            cost = self.rules.unparsable if unparsable else self.rules.invalid
            if cost == "end_game":
                self.status = GameStatus.LOST
            elif cost == "retry" and self.retries < self.rules.max_retries:
                self.retries += 1
                turns_used -= 1
        self.state = State(clues, turns_used, self.rules.max_turns)
        if turn.won:
            self.status = GameStatus.WON
        elif turns_used >= self.rules.max_turns:
            self.status = GameStatus.LOST
