"""A transformers tokenizer as wordle_rl.policy.engine.Tokenizer; serves every backend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from wordle_rl.runs.files import FolderError

_SHORT = 16  # tokens; the texts of answers up to this length are cached, because they recur
_MOST_TEXTS = 20_000
# For base models, which bring no template. Only an answer ends in the end-of-sequence token.
PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}:\n{{ m.content }}"
    "{{ eos_token if m.role == 'assistant' }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
_PLAIN_NOTE = (
    "the model has no chat template, as base models: each message begins with its role (System:, "
    "User:, Assistant:), and an answer ends with {}"
)


def list_stop_ids(eos_token_id: int | Sequence[int] | None) -> tuple[int, ...]:
    """The stop ids in eos_token_id of a model's config, which may hold one, several or none."""
    ids = eos_token_id if isinstance(eos_token_id, Sequence) else (eos_token_id,)
    return tuple(int(i) for i in ids if i is not None)


def read_stop_ids(path: str) -> tuple[int, ...]:
    """The stop ids of a model's generation config, none without one. path: folder or hub name."""
    from transformers import GenerationConfig

    try:
        return list_stop_ids(GenerationConfig.from_pretrained(path).eos_token_id)
    except OSError:
        return ()


class HFTokenizer:
    """Adapts one tokenizer. `inner` is the transformers object.

    notes: a sentence on each thing that the user should know about it.
    """

    def __init__(self, inner: Any, *, extra_stop_ids: tuple[int, ...] = ()) -> None:
        self.inner = inner
        stops = {inner.eos_token_id, *extra_stop_ids} - {None}
        if not stops:
            raise ValueError("the tokenizer names no end-of-sequence token (eos_token)")
        self.notes: tuple[str, ...] = ()
        if inner.chat_template is None:
            if inner.eos_token is None:
                raise ValueError("the tokenizer has neither a chat template nor an eos_token")
            inner.chat_template = PLAIN_TEMPLATE
            self.notes = (_PLAIN_NOTE.format(inner.eos_token),)
        self._known_ids = frozenset(inner.get_vocab().values())
        self._texts: dict[tuple[int, ...], str] = {}
        self._stop_ids = frozenset(int(i) for i in stops)
        self._pad_id = int(inner.pad_token_id if inner.pad_token_id is not None else min(stops))

    @property
    def pad_id(self) -> int:
        return self._pad_id

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._stop_ids

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False)

    def decode(self, ids: list[int]) -> str:
        if ids and ids[-1] in self._stop_ids:
            ids = ids[:-1]
        if len(ids) > _SHORT:
            return self._decode_all(ids)
        key = tuple(ids)
        text = self._texts.get(key)
        if text is None:
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            text = self._texts[key] = self._decode_all(ids)
        return text

    def _decode_all(self, ids: list[int]) -> str:
        if self._known_ids.issuperset(ids):
            return self.inner.decode(ids, skip_special_tokens=False)
        # Many models have more ids than their tokenizer has tokens. Its decode drops such ids.
        parts = groupby(ids, self._known_ids.__contains__)
        return "".join(
            self._decode_all(list(part)) if known else "".join(f"<|{i}|>" for i in part)
            for known, part in parts
        )

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> str:
        """The messages as text, up to where the next answer begins. Raises FolderError."""
        try:
            return self.inner.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template can raise what any Python operation raises
            raise FolderError(
                f"the chat template of {self.inner.name_or_path or 'the model'} fails: "
                f"{type(error).__name__}: {str(error)[:300]}"
            ) from None
