"""Settings of words=: which lists a run plays with, and which secrets it may train on."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.runs.instantiate import MOST, check_choice, check_range
from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, in_hash_order, split_secrets

# Which secrets training games may have: the training answers, every answer, or every allowed word
# but the validation and test answers.
PROTOCOLS = ("split", "all", "allowed")

# What eval.py may play. "allowed" is the allowed words that are no answers.
SPLITS = ("train", "val", "test", "all", "allowed")


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """Which lists, how the secrets are split, and which of them may be trained on."""

    preset: str | None = "original"
    answers: str | None = None
    allowed: str | None = None
    column: str | None = None
    protocol: str = "split"
    allowed_share: float = 0.0
    test: int | float = 315
    val: int | float = 200
    train: int | None = None
    split: str = "test"

    def __post_init__(self) -> None:
        check_choice("words.protocol", self.protocol, PROTOCOLS)
        check_choice("words.split", self.split, SPLITS)
        check_range("words.allowed_share", self.allowed_share, 0, 1)
        if self.allowed_share and self.protocol != "split":
            raise ValueError(
                "words.allowed_share must be 0 unless words.protocol=split, not "
                f"{self.allowed_share:g}"
            )
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

    def eval_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets that eval.py plays, in hash order. Raises ValueError if there are none."""
        if self.split != "allowed":
            return splits.secrets(self.split)  # pyright: ignore[reportArgumentType]
        rest = set(words.allowed).difference(words.answers)
        if not rest:
            raise ValueError(
                "words.split must be train, val, test or all where every allowed word is an "
                "answer, not allowed"
            )
        return tuple(in_hash_order(rest))

    def training_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets of training games, those of allowed_share not included."""
        if self.protocol == "all":
            return words.answers
        if self.protocol == "allowed":
            return list_clean_words(words, splits)
        return splits.train[: self.train]

    def allowed_secrets(self, words: WordLists, splits: Splits) -> tuple[str, ...]:
        """The secrets of the groups that allowed_share gives to any allowed word."""
        return list_clean_words(words, splits) if self.allowed_share else ()


def list_clean_words(words: WordLists, splits: Splits) -> tuple[str, ...]:
    """All allowed words but the validation and test answers, in hash order."""
    held_out = {*splits.val, *splits.test}
    return tuple(word for word in in_hash_order(words.allowed) if word not in held_out)
