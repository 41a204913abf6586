"""Train, validation and test secrets: disjoint, and the same on every machine.

Secrets are sorted by the sha256 of each word. The first ones are for the test, the next
ones for validation, and the rest for training. Any two words have the same order in every list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from wordle_rl.words.lists import WordLists

Which = Literal["train", "val", "test", "all"]
TEST_SHARE = 315 / 2315  # exactly 315 of the original answers
VAL_SHARE = 200 / 2315  # exactly 200 of them


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Secrets by purpose, each part in hash order, so that its first n are a fair sample.

    Raises ValueError when a part is empty or a secret is in two parts.
    """

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            if not getattr(self, name):
                raise ValueError(f"splits.{name} must hold at least one secret")
        everything = self.secrets("all")
        if len(set(everything)) < len(everything):
            raise ValueError("splits must be disjoint and without repeats")

    def secrets(self, which: Which) -> tuple[str, ...]:
        """The secrets of one part, or of all three (test, validation, train)."""
        if which == "all":
            return self.test + self.val + self.train
        if which not in ("train", "val", "test"):
            raise ValueError(f"split must be train, val, test or all, not {which!r}")
        return getattr(self, which)

    @cached_property
    def digest(self) -> str:
        """Hex sha256 of which secret is in which part."""
        parts = (f"{name}\n" + "\n".join(sorted(self.secrets(name))) for name in _PARTS)
        return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()


_PARTS: tuple[Which, ...] = ("train", "val", "test")


def split_secrets(
    words: WordLists, *, test: int | float = TEST_SHARE, val: int | float = VAL_SHARE
) -> Splits:
    """Split the answers.

    test, val: a number of secrets (int), or a share of them (float between 0 and 1) that is rounded
    to one secret or more. Raises ValueError when a size is out of range or no secret is left to
    train on.
    """
    ordered = in_hash_order(words.answers)
    tests = _size("test", test, len(ordered))
    vals = _size("val", val, len(ordered))
    if tests + vals >= len(ordered):
        raise ValueError(
            f"words.test + words.val must leave a secret to train on: {tests} + {vals} "
            f"of {len(ordered)}"
        )
    return Splits(
        test=tuple(ordered[:tests]),
        val=tuple(ordered[tests : tests + vals]),
        train=tuple(ordered[tests + vals :]),
    )


def in_hash_order(words: Iterable[str]) -> list[str]:
    """The words sorted by the sha256 of each, so that any first n are a fair sample."""
    return sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())


def _size(name: str, wanted: int | float, total: int) -> int:
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 1:
        return wanted
    if isinstance(wanted, float) and 0.0 < wanted < 1.0:
        return max(1, round(wanted * total))
    raise ValueError(
        f"words.{name} must be a whole number of at least 1, or a share between 0.0 and 1.0, "
        f"not {wanted!r}"
    )
