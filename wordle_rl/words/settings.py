"""Settings of words=: which lists a run plays with, and which secrets it may train on."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.runs.checks import check_choice
from wordle_rl.runs.instantiate import MOST, check_range
from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, in_hash_order, split_secrets

# Which secrets training games may have: the training answers, every answer, or every allowed word
# but the validation and test answers.
PROTOCOLS = ("split", "all", "allowed")


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """Which lists, how the secrets are split, and which of them may be trained on."""

    preset: str | None = "original"
    answers: str | None = None
    allowed: str | None = None
    column: str | None = None
    protocol: str = "split"
    test: int | float = 315
    val: int | float = 200
    train: int | None = None
    split: str = "test"

    def __post_init__(self) -> None:
        check_choice("words.protocol", self.protocol, PROTOCOLS)
        check_choice("words.split", self.split, ("train", "val", "test", "all"))
        if self.train is not None:
            check_range("words.train", self.train, 1, MOST)
            if self.protocol != "split":
                raise ValueError("words.train is for words.protocol=split, where secrets are left")

    def load(self) -> tuple[WordLists, Splits]:
        """The lists and their split. Raises WordListError or ValueError."""
        words = load_words(
            preset=self.preset, answers=self.answers, allowed=self.allowed, column=self.column
        )
        return words, split_secrets(words, test=self.test, val=self.val)

    def training_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets that training games may have."""
        if self.protocol == "all":
            return words.answers
        if self.protocol == "allowed":
            held_out = {*splits.val, *splits.test}
            return tuple(word for word in in_hash_order(words.allowed) if word not in held_out)
        return splits.train[: self.train]
