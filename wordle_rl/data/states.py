"""Rows as states: a secret, and the guesses made before the policy takes the game over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.data.cells import BadRow, read_guesses, read_word
from wordle_rl.game.rules import Clue, Rules, breaks_hard_mode, feedback_code, marks_of
from wordle_rl.rollouts.given import GivenState
from wordle_rl.runs.tables import Table
from wordle_rl.words.lists import WordLists

SECRETS = ("secret", "reward_model")  # columns, the first one of them that a file has
GUESSES = ("past_guesses", "past_guess_history")


def read_secret(row: Mapping[str, Any]) -> str | None:
    """The secret of a row. None if its cells are empty. Raises BadRow for anything but a word."""
    value = row.get("secret")
    if value is None and isinstance(model := row.get("reward_model"), Mapping):
        value = model.get("ground_truth")
    return None if value is None else read_word("secret", value)


@dataclass(frozen=True, kw_only=True)
class StateReader:
    """Reads states that can be played with these words and rules."""

    words: WordLists
    rules: Rules

    def read(self, row: Mapping[str, Any]) -> GivenState:
        """The state of a row. Raises BadRow."""
        secret = read_secret(row)
        if secret is None:
            raise BadRow("the secret is missing")
        self._check_word("secret", secret)
        given = next((row[name] for name in GUESSES if row.get(name) is not None), None)
        clues: list[Clue] = []
        for guess, code in read_guesses(given):
            self._check_word("guess", guess)
            if guess == secret:
                raise BadRow(f"the game is already won with {guess}")
            if code != (right := feedback_code(guess, secret)):
                raise BadRow(
                    f"the feedback of {guess} for the secret {secret} must be {marks_of(right)}, "
                    f"not {marks_of(code)}"
                )
            if self.rules.hard_mode and breaks_hard_mode(guess, tuple(clues)):
                raise BadRow(f"{guess} ignores a clue, which rules.hard_mode=true forbids")
            clues.append(Clue(guess, code))
        if len(clues) >= self.rules.max_turns:
            raise BadRow(f"{len(clues)} earlier guesses leave none of {self.rules.max_turns} turns")
        return GivenState(secret=secret, clues=tuple(clues))

    def _check_word(self, name: str, word: str) -> None:
        if self.rules.invalid != "accept" and word not in self.words.allowed_set:
            raise BadRow(f"the {name} {word} is not in the word list")


class TableStates:
    """The states of some rows of a table. Each is read when it is asked for."""

    def __init__(
        self,
        table: Table,
        reader: StateReader,
        numbers: NDArray[np.int64],
        secrets: list[str],
        most: int,
    ) -> None:
        """numbers: of the rows, which are known to be good. secrets: one per row.

        most: the most clues that one of them has.
        """
        self._table, self._reader, self._numbers = table, reader, numbers
        self.secrets, self.most = secrets, most

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: int, /) -> GivenState:
        return self._reader.read(self._table.row(int(self._numbers[place])))
