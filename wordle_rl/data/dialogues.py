"""Rows as dialogues: `messages`, or a prompt with its answer, to be learnt as they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.data.cells import BadRow, shown
from wordle_rl.rollouts.given import Exchange, GivenDialogue
from wordle_rl.runs.tables import Table

MESSAGES, PROMPT = "messages", "prompt"
ANSWERS = ("completion", "answer", "response")  # columns beside prompt
# Tokens of chat templates. In a message they would end it or begin another one.
_MARKUP = re.compile(r"<\|[^<>|\s]{1,40}\|>|<(?:start|end)_of_turn>|<(?:bos|eos|s|/s)>")

_Message = tuple[str, str, bool]  # role, text, whether it is learnt if it is an answer


def has_answers(columns: Collection[str]) -> bool:
    """Whether a file with these columns has dialogues."""
    return MESSAGES in columns or (PROMPT in columns and any(name in columns for name in ANSWERS))


def read_dialogue(row: Mapping[str, Any], number: int) -> GivenDialogue:
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
        raise BadRow(f"user and assistant must alternate, not {shown(', '.join(roles))}")
    pairs = zip(messages[::2], messages[1::2], strict=True)
    return GivenDialogue(
        row=number,
        system=system,
        exchanges=tuple(
            Exchange(message=message, answer=answer, trained=learnt)
            for (_, message, _), (_, answer, learnt) in pairs
        ),
    )


def _read_messages(column: str, value: Any, role: str, *, learnt: bool) -> list[_Message]:
    """The messages of a cell. role: of a cell that is one text."""
    if isinstance(value, str):
        value = [{"role": role, "content": value}]
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadRow(f"{column} must be text or a list of messages, not {shown(value)}")
    return [_read_message(column, item, learnt) for item in value]


def _read_message(column: str, item: Mapping[str, Any], learnt: bool) -> _Message:
    role, text = item.get("role"), item.get("content")
    if role not in ("system", "user", "assistant"):
        raise BadRow(f"a role in {column} must be system, user or assistant, not {shown(role)}")
    if not isinstance(text, str) or not text.strip():
        raise BadRow(f"a message in {column} has no text")
    if found := _MARKUP.search(text):
        raise BadRow(f"{column} holds {found[0]}, which belongs to a chat template")
    return role, text, learnt


class TableDialogues:
    """The dialogues of some rows of a table. Each is read when it is asked for."""

    def __init__(self, name: str, table: Table, numbers: NDArray[np.int64]) -> None:
        """name: the file's. numbers: of the rows, which are known to be good."""
        self.name, self._table, self._numbers = name, table, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: int, /) -> GivenDialogue:
        number = int(self._numbers[place])
        return read_dialogue(self._table.row(number), number)
