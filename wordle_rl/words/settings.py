"""Settings of words=: which lists a run plays with, and which secrets it may train on."""

from __future__ import annotations

from dataclasses import dataclass

from wordle_rl.runs.checks import check_choice
from wordle_rl.runs.instantiate import MOST, check_range
from wordle_rl.words.lists import WordLists, load_words
from wordle_rl.words.splits import Splits, split_secrets


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
        check_choice("words.protocol", self.protocol, ("split", "all"))
        check_choice("words.split", self.split, ("train", "val", "test", "all"))
        if self.train is not None:
            check_range("words.train", self.train, 1, MOST)
            if self.protocol == "all":
                raise ValueError("words.train is for words.protocol=split, where secrets are left")

    def load(self) -> tuple[WordLists, Splits]:
        """The lists and their split. Raises WordListError or ValueError."""
        words = load_words(
            preset=self.preset, answers=self.answers, allowed=self.allowed, column=self.column
        )
        return words, split_secrets(words, test=self.test, val=self.val)
