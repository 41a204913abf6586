"""States and dialogues that somebody gives, to train on instead of planned games."""

from dataclasses import dataclass
from typing import NamedTuple

from wordle_rl.game.rules import Clue, State
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.talk import Talk


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenState:
    """Where a training game begins."""

    secret: str
    clues: tuple[Clue, ...] = ()

    def state(self, max_turns: int) -> State:
        return State(self.clues, len(self.clues), max_turns)


class Exchange(NamedTuple):
    """A message of the user and the assistant's answer to it."""

    message: str
    answer: str
    trained: bool  # whether the answer is learnt, not only read


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenDialogue:
    """A dialogue whose answers are learnt as they are."""

    row: int  # its number in the file, counted from 1
    system: str | None  # None leaves the system prompt to the chat template
    exchanges: tuple[Exchange, ...]

    @property
    def bytes(self) -> int:
        """The length of all texts in UTF-8. A token has one byte or more."""
        texts = [self.system or "", *(message + answer for message, answer, _ in self.exchanges)]
        return sum(len(text.encode()) for text in texts)


def dialogue_talk(dialogue: GivenDialogue, chat: Chat) -> Talk:
    """A dialogue as tokens, as if a policy had given its answers."""
    talk, end = Talk(), chat.turn_end_id
    for i, (message, answer, trained) in enumerate(dialogue.exchanges):
        opening = () if i else chat.opening(dialogue.system, message)
        talk.hear([*(opening or chat.reply(message, last_id=end))], i)
        talk.answer(chat.answer(answer), i, trained=trained)
    return talk
