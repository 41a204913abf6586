"""Reads a row of a file: as a state to play from, or as a dialogue to learn.

Files come from anywhere. A cell is never evaluated as code, and addresses in it are never opened.
"""

import ast
import re
from collections.abc import Collection, Mapping
from typing import Any

from wordle_rl.game.rules import MARKS, Clue, Rules, breaks_hard_mode, feedback_code, marks_of
from wordle_rl.rollouts.given import Exchange, GivenDialogue, GivenState
from wordle_rl.words.lists import WORD_LENGTH, WordLists

SECRET = "secret"  # columns
GUESSES = ("past_guesses", "past_guess_history")
MESSAGES, PROMPT = "messages", "prompt"
ANSWERS = ("completion", "answer", "response")  # columns beside prompt
_LONGEST_TEXT = 10_000  # characters of a list that is written as text
# Tokens of chat templates. In a message they would end it or begin another one.
_MARKUP = re.compile(r"<\|[^<>|\s]{1,40}\|>|<(?:start|end)_of_turn>|<(?:bos|eos|s|/s)>")

Row = Mapping[str, Any]
_Message = tuple[str, str, bool]  # role, text, whether it is learnt if it is an answer


class BadRow(ValueError):
    """A row cannot be trained on. The message says why, in a few words."""


def _quote(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def read_word(name: str, value: Any) -> str:
    """A word of five ASCII letters, in lower case. name: what it is, for the message."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if len(word) != WORD_LENGTH or not (word.isascii() and word.isalpha()):
        raise BadRow(f"the {name} must have five letters, not {_quote(value)}")
    return word


def read_feedback(guess: str, value: Any) -> int:
    """The code 0..242 of feedback written as `x-✓xx` or as `C(x) R(-) A(✓) N(x) E(x)`."""
    text = "".join(value.split()) if isinstance(value, str) else ""
    letters = re.findall(r"([A-Za-z])\((.)\)", text)
    if len(text) == 4 * len(letters) and "".join(a for a, _ in letters).lower() == guess:
        text = "".join(mark for _, mark in letters)
    if len(text) != WORD_LENGTH or not set(text) <= set(MARKS):
        raise BadRow(f"the feedback of {guess} cannot be read: {_quote(value)}")
    return int("".join(str(MARKS.index(mark)) for mark in text), 3)


def read_guesses(value: Any) -> list[tuple[str, int]]:
    """Earlier guesses with the feedback codes that the file gives them.

    value: a list of [guess, feedback] pairs, or of objects with these two names, or the text of
    such a list in Python or JSON. None and empty text mean no guess.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value.strip()) if len(value) <= _LONGEST_TEXT else None
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise BadRow(f"the earlier guesses are no list: {_quote(value)}") from None
    if not isinstance(value, list | tuple):
        raise BadRow(f"the earlier guesses must be a short list, not {_quote(value)}")
    guesses = []
    for item in value:
        pair = (item.get("guess"), item.get("feedback")) if isinstance(item, Mapping) else item
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadRow(f"an earlier guess must be a pair with its feedback, not {_quote(item)}")
        guess = read_word("guess", pair[0])
        guesses.append((guess, read_feedback(guess, pair[1])))
    return guesses


def read_secret(row: Row) -> str | None:
    """The secret of a row. None if its cells are empty. Raises BadRow for anything but a word."""
    value = row.get(SECRET)
    return None if value is None else read_word("secret", value)


def read_state(row: Row, words: WordLists, rules: Rules) -> GivenState:
    """The state of a row, which can be played with these words and rules. Raises BadRow."""
    secret = read_secret(row)
    if secret is None:
        raise BadRow("the secret is missing")
    cell = next((row[name] for name in GUESSES if row.get(name) is not None), None)
    guesses = read_guesses(cell)
    for word in (secret, *(guess for guess, _ in guesses)):
        if rules.invalid != "accept" and word not in words.allowed_set:
            raise BadRow(f"{word} is not in the word list")
    clues: list[Clue] = []
    for guess, code in guesses:
        if guess == secret:
            raise BadRow(f"the game is already won with {guess}")
        if code != (true_code := feedback_code(guess, secret)):
            fault = f"must be {marks_of(true_code)}, not {marks_of(code)}"
            raise BadRow(f"the feedback of {guess} for the secret {secret} {fault}")
        if rules.hard_mode and breaks_hard_mode(guess, tuple(clues)):
            raise BadRow(f"{guess} ignores a clue, which rules.hard_mode=true forbids")
        clues.append(Clue(guess, code))
    if len(clues) >= rules.max_turns:
        raise BadRow(f"{len(clues)} earlier guesses leave none of {rules.max_turns} turns")
    return GivenState(secret=secret, clues=tuple(clues))


def has_answers(columns: Collection[str]) -> bool:
    """Whether a file with these columns has dialogues."""
    return MESSAGES in columns or (PROMPT in columns and any(name in columns for name in ANSWERS))


def read_dialogue(row: Row, number: int) -> GivenDialogue:
    """The dialogue of a row. All answers of `messages` are learnt, but only those behind a prompt.

    Raises BadRow unless messages of user and assistant alternate and the assistant has the last.
    """
    if row.get(MESSAGES) is not None:
        messages = _read_messages(MESSAGES, row[MESSAGES], "user", learnt=True)
    else:
        name = next((name for name in ANSWERS if row.get(name) is not None), None)
        if name is None or row.get(PROMPT) is None:
            raise BadRow("there is no prompt with an answer, and no messages")
        messages = _read_messages(PROMPT, row[PROMPT], "user", learnt=False)
        messages += _read_messages(name, row[name], "assistant", learnt=True)
    system = messages.pop(0)[1] if messages and messages[0][0] == "system" else None
    roles = [role for role, _, _ in messages]
    if not roles or roles != ["user", "assistant"] * (len(roles) // 2):
        raise BadRow(f"user and assistant must alternate, not {_quote(', '.join(roles))}")
    pairs = zip(messages[::2], messages[1::2], strict=True)
    exchanges = tuple(Exchange(m[1], answer[1], answer[2]) for m, answer in pairs)
    return GivenDialogue(row=number, system=system, exchanges=exchanges)


def _read_messages(column: str, value: Any, role: str, *, learnt: bool) -> list[_Message]:
    """The messages of a cell. role: of a cell that is one text."""
    if isinstance(value, str):
        value = [{"role": role, "content": value}]
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadRow(f"{column} must be text or a list of messages, not {_quote(value)}")
    messages: list[_Message] = []
    for item in value:
        role, text = str(item.get("role")), item.get("content")
        if role not in ("system", "user", "assistant"):
            raise BadRow(f"a role in {column} must be system, user or assistant, not {role!r:.40}")
        if not isinstance(text, str) or not text.strip():
            raise BadRow(f"a message in {column} has no text")
        if match := _MARKUP.search(text):
            raise BadRow(f"{column} holds {match[0]}, which belongs to a chat template")
        messages.append((role, text, learnt))
    return messages
