"""Conversations as token ids, through whatever chat template the tokenizer brings.

Text is encoded once and never again: answers enter a conversation as the ids that were sampled,
and only the environment's own text between two answers is encoded here.
"""

from __future__ import annotations

from typing import Protocol

from wordle_rl.game import State
from wordle_rl.prompts import PromptStyle
from wordle_rl.sampling import Sampling

_ANSWER, _MESSAGE = "ANSWERPLACE", "MESSAGEPLACE"  # stand-ins that survive templates' trimming


class Tokenizer(Protocol):
    """What is needed of a tokenizer; the backends hand in the real one."""

    @property
    def pad_id(self) -> int: ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of text, special tokens recognised, none added."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of ids without special tokens."""
        ...

    def render(self, messages: list[dict[str, str]]) -> str:
        """The chat template's text up to where the assistant's next answer begins."""
        ...


class Chat:
    """Builds the ids around the answers of one kind of conversation."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        text = tokenizer.render(
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": _ANSWER},
                {"role": "user", "content": _MESSAGE},
            ]
        )
        if text.count(_ANSWER) != 1 or text.count(_MESSAGE) != 1:
            raise ValueError(
                "the chat template must show each message once; "
                f"it rendered a three-message conversation as {text!r}"
            )
        between = text[text.index(_ANSWER) + len(_ANSWER) :]
        self._before, self._after = between.split(_MESSAGE)
        self.turn_end_id = tokenizer.encode(self._before)[0]
        if self.turn_end_id not in tokenizer.stop_ids:
            raise ValueError(
                f"the chat template ends an answer with {tokenizer.encode(self._before)[:1]}, "
                f"which is none of the tokenizer's stop ids {sorted(tokenizer.stop_ids)}"
            )
        self._cache: dict[str, list[int]] = {}
        self._answers: dict[str, list[int]] = {}

    def opening(self, system: str, message: str) -> list[int]:
        """Ids up to where the first answer begins, exactly as the template writes them."""
        messages = [{"role": "system", "content": system}, {"role": "user", "content": message}]
        return self.tokenizer.encode(self.tokenizer.render(messages))

    def check_room(self, style: PromptStyle, sampling: Sampling, max_context: int) -> None:
        """Raise ValueError unless a first answer fits into the context."""
        prompt = len(self.opening(style.system, style.opening(State())))
        if prompt + sampling.max_tokens > max_context:
            raise ValueError(
                f"model.max_context must be {prompt + sampling.max_tokens} or more for the first "
                f"prompt of {prompt} tokens and sampling.max_tokens={sampling.max_tokens}, "
                f"not {max_context}"
            )

    def reply(self, message: str, *, last_id: int) -> list[int]:
        """Ids from the end of an answer to where the next one begins.

        last_id: the answer's last sampled id; the template's end of turn is fed unless the policy
        drew it itself.
        """
        ids = self._cache.get(message)
        if ids is None:
            if len(self._cache) > 100_000:
                self._cache.clear()
            ids = self.tokenizer.encode(self._before + message + self._after)
            self._cache[message] = ids
        return ids[1:] if last_id == self.turn_end_id else ids

    def answer(self, text: str) -> list[int]:
        """Ids of a scripted player's answer, with the end of turn that a policy would draw."""
        ids = self._answers.get(text)
        if ids is None:
            if len(self._answers) > 100_000:
                self._answers.clear()
            ids = self._answers[text] = [*self.tokenizer.encode(text), self.turn_end_id]
        return ids
