"""Conversations as token ids, for any tokenizer's chat template.

No text is encoded twice. Answers stay the ids that were sampled, and only the environment's text
between answers is encoded here. A template may write something between the generation prompt and an
answer, such as a blank in older Mistral templates. The policy has to draw that text itself, so a
scripted player's answers begin with it. They are encoded behind the end of the generation prompt,
because many tokenizers would put a blank before a text of its own.

Some templates end the generation prompt inside a thought. Where no thoughts are wanted they are
asked to close it (`enable_thinking`). Where they are, the prompt has the opening tag, and the
answer does not repeat it.
"""

import re
from functools import cached_property, lru_cache
from typing import Any

from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import CLOSE_THINK, TOOL, call_message, parse_call

_TOOLS = (
    "rollout.form=tool needs a model whose chat template has tools and writes their calls as "
    "<tool_call>{...}</tool_call>, as Qwen2.5's does"
)
_THOUGHT = re.compile(r"<think>\s*(</think>\s*)?$")  # how a generation prompt may end
# Stand-ins that survive templates' trimming.
_ANSWER, _MESSAGE, _SYSTEM = "ANSWERPLACE", "MESSAGEPLACE", "SYSTEMPLACE"
_CACHE_SIZE = 20_000  # entries of up to some 10 kB; there are 12,972 allowed words


def entry(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


_CONVERSATION = [entry("user", "a"), entry("assistant", _ANSWER), entry("user", _MESSAGE)]


class Chat:
    """Builds the ids around the answers of a conversation.

    think: whether answers begin with a thought. opened: what the generation prompt writes of it.
    """

    def __init__(self, tokenizer: HFTokenizer, *, think: bool = False) -> None:
        self.tokenizer, self.think = tokenizer, think
        text = tokenizer.render(_CONVERSATION, think=think)
        _, _, tail = text.partition(_ANSWER)
        if not text.count(_ANSWER) == text.count(_MESSAGE) == tail.count(_MESSAGE) == 1:
            raise ValueError(
                "the chat template must show each message once; it rendered a three-message "
                f"conversation as {text[:400]!r}"
            )
        begin = tokenizer.render(_CONVERSATION[:1], think=think)
        thought = _THOUGHT.search(begin)
        self.opened = thought[0] if thought and CLOSE_THINK not in thought[0] else ""
        self._lead = text[len(begin) : text.index(_ANSWER)] if text.startswith(begin) else ""
        self._before, self._after = tail.split(_MESSAGE)
        ending = tokenizer.encode(self._before)[:1]
        if not tokenizer.stop_ids.issuperset(ending) or not ending:
            tokens = tokenizer.inner.convert_ids_to_tokens(ending)
            raise ValueError(
                f"the chat template ends an answer with {ending} {tokens}, which is none of the "
                f"model's stop ids {sorted(tokenizer.stop_ids)}: take the model of its family that "
                "was trained to chat, or add that id to eos_token_id in a copy's "
                "generation_config.json"
            )
        self.turn_end_id = ending[0]
        # The text of the token that ends an answer; the token must not hold more than that.
        ends = (self._before[:length] for length in range(1, len(self._before) + 1))
        self._end = next((e for e in ends if tokenizer.encode(e) == ending), None)
        # From the last special token of the generation prompt on.
        start = max((begin.rfind(token) for token in tokenizer.inner.get_added_vocab()), default=0)
        self._prompt = begin[max(start, 0) :]
        self._encode = lru_cache(maxsize=_CACHE_SIZE)(tokenizer.encode)
        self._encode_answer = lru_cache(maxsize=_CACHE_SIZE)(self._encode_behind)
        # Ids up to the first answer, exactly as the template writes them. If the template has no
        # place for a system prompt, the message begins with it. None leaves the system prompt to
        # the template, which may have one of its own.
        self.opening = lru_cache(maxsize=_CACHE_SIZE)(self._encode_opening)

    def _encode_opening(self, system: str | None, message: str) -> list[int]:
        if system is None:
            messages = [entry("user", message)]
        elif self._takes_system:
            messages = [entry("system", system), entry("user", message)]
        else:
            messages = [entry("user", f"{system}\n\n{message}")]
        return self.tokenizer.encode(self._render(messages))

    def reply(self, message: str, *, last_id: int) -> list[int]:
        """Ids from the end of an answer to the beginning of the next one.

        last_id: the answer's last sampled id. If it is the template's end of turn, the ids leave
        that out.
        """
        ids = self._encode(self._before + message + self._after)
        return ids[1:] if last_id == self.turn_end_id else ids

    def answer(self, text: str, *, begins: bool = True) -> list[int]:
        """Ids of a scripted player's answer, with the end of turn that a policy would draw.

        begins: False if the text follows a thought.
        """
        before = self._prompt if begins else f"{self._prompt}\n"
        text = self._begin_answer(text) if begins else text
        return [*self._encode_answer(before, text), self.turn_end_id]

    def _begin_answer(self, text: str) -> str:
        """An answer's text as it follows the generation prompt."""
        return f"{CLOSE_THINK}\n{text}" if self.opened else self._lead + text

    def read(self, ids: list[int]) -> str:
        """The text of an answer, with the part of its thought that is in the prompt."""
        return self.opened + self.tokenizer.decode(ids)

    def _encode_behind(self, before: str, text: str) -> list[int]:
        """Ids of a text as it continues another one, whose tokens are given."""
        # A token may reach across the border. Then what is before decides only about a blank.
        for prefix in (before, f"{before}.", self._end or ""):
            head, ids = self._encode(prefix), self.tokenizer.encode(prefix + text)
            if ids[: len(head)] == head:
                return ids[len(head) :]
        return self.tokenizer.encode(text)

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the template writes a system prompt, once and before the conversation.

        Some templates raise, some leave it out, and some move it to the last message.
        """
        try:
            text = self._render([entry("system", _SYSTEM), *_CONVERSATION])
        except ValueError:
            return False
        return text.count(_SYSTEM) == 1 and text.find(_SYSTEM) < text.find(_ANSWER)

    def _render(self, messages: list[dict[str, Any]]) -> str:
        return self.tokenizer.render(messages, think=self.think)


class ToolChat(Chat):
    """A chat in which answers are calls of one tool, and the replies are their results.

    Raises ValueError for a chat template without tools, or with calls that the parser cannot read.
    """

    def __init__(self, tokenizer: HFTokenizer, *, think: bool = False) -> None:
        super().__init__(tokenizer, think=think)
        question = _CONVERSATION[0]
        result = {"role": "tool", "name": TOOL["function"]["name"], "content": _MESSAGE}
        try:
            text = self._render([question, call_message(_ANSWER), result])
            begin = _THOUGHT.sub("", self._render([question]))  # earlier calls have no thought
        except ValueError as error:
            raise ValueError(f"{_TOOLS}: {error}") from None
        end = self._end or _ANSWER
        call, _, rest = text[len(begin) :].partition(end)
        self._call = call.removeprefix(self._lead)
        answer = parse_call(tokenizer.decode(tokenizer.encode(self.call("crane"))))
        complete = text.startswith(begin) and text.count(_MESSAGE) == rest.count(_MESSAGE) == 1
        if not complete or "parameters" not in begin or answer.guess != "crane":
            raise ValueError(f"{_TOOLS}: this one writes a call or its result differently")
        self._before, self._after = (end + rest).split(_MESSAGE)

    def call(self, guess: str) -> str:
        """The answer that guesses a word, as the template writes it."""
        return self._call.replace(_ANSWER, guess)

    def _render(self, messages: list[dict[str, Any]]) -> str:
        return self.tokenizer.render(messages, [TOOL], think=self.think)
