"""Train, validation and test secrets: disjoint, and the same on every machine.

Secrets are sorted by the sha256 of each word. The first ones are for the test, the next
ones for validation, and the rest for training. Any two words have the same order in every list.
WordSettings are the settings of words=, which say what a run may train on.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from wordle_rl.runs.instantiate import Count, Share
from wordle_rl.words.lists import WordLists, load_words

Which = Literal["train", "val", "test", "all"]
TEST_SHARE = 315 / 2315  # exactly 315 of the original answers
VAL_SHARE = 200 / 2315  # exactly 200 of them


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Secrets by purpose, each part in hash order, so that its first n are a fair sample."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]

    def secrets(self, which: Which) -> tuple[str, ...]:
        """The secrets of one part, or of all three (test, validation, train)."""
        return self.test + self.val + self.train if which == "all" else getattr(self, which)

    @cached_property
    def digest(self) -> str:
        """Hex sha256 of which secret is in which part."""
        pairs = (("train", self.train), ("val", self.val), ("test", self.test))
        parts = (f"{name}\n" + "\n".join(sorted(secrets)) for name, secrets in pairs)
        return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()


def split_secrets(
    words: WordLists, *, test: int | float = TEST_SHARE, val: int | float = VAL_SHARE
) -> Splits:
    """Split the answers.

    test, val: a number of secrets (int), or a share of them (float between 0 and 1) that is rounded
    to one secret or more. Raises ValueError when a size is out of range or no secret is left to
    train on.
    """
    secrets = in_hash_order(words.answers)
    tests = _size("test", test, len(secrets))
    vals = _size("val", val, len(secrets))
    if tests + vals >= len(secrets):
        raise ValueError(
            f"words.test + words.val must leave a secret to train on: {tests} + {vals} "
            f"of {len(secrets)}"
        )
    return Splits(
        test=tuple(secrets[:tests]),
        val=tuple(secrets[tests : tests + vals]),
        train=tuple(secrets[tests + vals :]),
    )


def in_hash_order(words: Iterable[str]) -> list[str]:
    """The words sorted by the sha256 of each, so that any first n are a fair sample."""
    return sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())


def _size(name: str, value: int | float, total: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, float) and 0.0 < value < 1.0:
        return max(1, round(value * total))
    raise ValueError(
        f"words.{name} must be a whole number of at least 1, or a share between 0.0 and 1.0, "
        f"not {value!r}"
    )


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """Which lists, how the secrets are split, and which of them may be trained on."""

    answers: str | None = None
    allowed: str | None = None
    column: str | None = None
    # Secrets of training games: the training answers, every answer, or every allowed word but the
    # validation and test answers.
    protocol: Literal["split", "all", "allowed"] = "split"
    allowed_share: Share = 0.0
    test: int | float = 315
    val: int | float = 200
    train: Count | None = None
    # What eval.py plays. "allowed" is the allowed words that are no answers.
    split: Literal["train", "val", "test", "all", "allowed"] = "test"

    def __post_init__(self) -> None:
        if self.protocol != "split" and (self.allowed_share or self.train is not None):
            raise ValueError("words.allowed_share and words.train need words.protocol=split")

    def load(self) -> tuple[WordLists, Splits]:
        """The lists and their split. Raises WordListError or ValueError."""
        words = load_words(answers=self.answers, allowed=self.allowed, column=self.column)
        return words, split_secrets(words, test=self.test, val=self.val)

    def eval_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets that eval.py plays, in hash order. Raises ValueError if there are none."""
        if self.split != "allowed":
            return splits.secrets(self.split)
        rest = set(words.allowed).difference(words.answers)
        if not rest:
            raise ValueError("words.split=allowed needs allowed words that are no answers")
        return tuple(in_hash_order(rest))

    def training_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets of training games, those of allowed_share not included."""
        if self.protocol == "allowed":
            return _clean_words(words, splits)
        return words.answers if self.protocol == "all" else splits.train[: self.train]

    def allowed_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets of the groups that allowed_share gives to any allowed word."""
        return _clean_words(words, splits) if self.allowed_share else ()


def _clean_words(words: WordLists, splits: Splits) -> tuple[str, ...]:
    """All allowed words but the validation and test answers, in hash order."""
    held_out = {*splits.val, *splits.test}
    return tuple(word for word in in_hash_order(words.allowed) if word not in held_out)
