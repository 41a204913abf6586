"""A transformers tokenizer for every backend: text into token ids and back."""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from wordle_rl.runs.files import FolderError
from wordle_rl.runs.timing import within

_SECONDS = 10  # that a template may take for a conversation; a loop in it could take days
_MOST_TEXTS = 20_000  # of answers, which recur
# For base models, which bring no template. Only an answer ends in the end-of-sequence token. Where
# the tokenizer begins a text with a token of its own, as those of Gemma and Llama 3, so does this.
PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}:\n{{ m.content }}"
    "{{ eos_token if m.role == 'assistant' }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
_PLAIN_NOTE = (
    "the model has no chat template, as base models: each message begins with its role (System:, "
    "User:, Assistant:), and an answer ends with {}"
)
# What a template that asks for the date is told, or equal runs would differ. It is the date that
# Llama 3.2's template takes where there is no clock.
_DATE = datetime(2024, 7, 26)
_DATE_NOTE = f"the chat template asks for the date, in place of which it now has {_DATE:%Y-%m-%d}"
_CLOCK = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")


def list_stop_ids(eos_token_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """The stop ids in eos_token_id of a model's config, which may hold one, several or none."""
    ids = eos_token_id if isinstance(eos_token_id, Sequence) else (eos_token_id,)
    return tuple(int(i) for i in ids if i is not None)


def _stop_clock(template: Any) -> Any:
    """A chat template, or several by name, with a date in place of the clock."""
    if isinstance(template, dict):
        return {name: _stop_clock(text) for name, text in template.items()}
    return _CLOCK.sub(lambda call: repr(_DATE.strftime(call[2])), template)


class HFTokenizer:
    """Adapts one tokenizer. `inner` is the transformers object.

    vocabulary: how many ids the model has. notes: a sentence on each thing that the user should
    know about it.
    """

    pad_id = 0  # of any model. The tokenizer's own may be beyond its ids, and nobody reads it.

    def __init__(
        self, inner: Any, *, extra_stop_ids: tuple[int, ...] = (), vocabulary: int | None = None
    ) -> None:
        self.inner, self._vocabulary = inner, vocabulary
        stops = {inner.eos_token_id, *extra_stop_ids} - {None}
        if not stops:
            raise ValueError("the tokenizer names no end-of-sequence token (eos_token)")
        self.notes: tuple[str, ...] = ()
        if inner.chat_template is None:
            if inner.eos_token is None:
                raise ValueError("the tokenizer has neither a chat template nor an eos_token")
            begins = inner.bos_token is not None and inner("a").input_ids[0] == inner.bos_token_id
            inner.chat_template = "{{ bos_token }}" * begins + PLAIN_TEMPLATE
            self.notes = (_PLAIN_NOTE.format(inner.eos_token),)
        if _CLOCK.search(str(inner.chat_template)):
            inner.chat_template = _stop_clock(inner.chat_template)
            self.notes += (_DATE_NOTE,)
        self._known_ids = frozenset(inner.get_vocab().values())
        self._decode_cached = lru_cache(_MOST_TEXTS)(self._decode_all)
        self.stop_ids = frozenset(int(i) for i in stops)

    def encode(self, text: str) -> list[int]:
        """The ids of a text. It recognises special tokens and adds none. Raises FolderError."""
        ids = self.inner.encode(text, add_special_tokens=False)
        if self._vocabulary is not None and (last := max(ids, default=0)) >= self._vocabulary:
            raise FolderError(
                f"the tokenizer writes {self.inner.convert_ids_to_tokens(last)} as id {last}, and "
                f"the model has {self._vocabulary} ids: give its folder the tokenizer that it was "
                "trained with"
            )
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of an answer's ids, without the stop id that ended it.

        Other special tokens, and ids that are not tokens, appear in the text by name. So they can
        neither be part of a guess nor go unnoticed.
        """
        if ids and ids[-1] in self.stop_ids:
            ids = ids[:-1]
        return self._decode_cached(tuple(ids))

    def _decode_all(self, ids: tuple[int, ...]) -> str:
        if self._known_ids.issuperset(ids):
            return self.inner.decode(list(ids), skip_special_tokens=False)
        # Many models have more ids than their tokenizer has tokens. Its decode drops such ids.
        parts = groupby(ids, self._known_ids.__contains__)
        return "".join(
            self._decode_all(tuple(part)) if known else "".join(f"<|{i}|>" for i in part)
            for known, part in parts
        )

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        think: bool = False,
    ) -> str:
        """The messages as text, up to the next answer. Raises FolderError and TimeoutError.

        think: whether the answer has a thought, for templates that ask (Qwen3, SmolLM3).
        """
        name = f"the chat template of {self.inner.name_or_path or 'the model'}"
        settings = {"add_generation_prompt": True, "enable_thinking": think}
        write = partial(self.inner.apply_chat_template, messages, tools=tools, tokenize=False)
        write = partial(write, **settings)
        try:
            return within(_SECONDS, write, name)
        except TimeoutError:
            raise
        except Exception as error:  # a template can raise what any Python operation raises
            raise FolderError(f"{name} fails: {type(error).__name__}: {str(error)[:300]}") from None
