"""Constrained decoding: the tokens that may continue an answer where only listed ones may be drawn.

Where several tokens may follow, the model's distribution is taken over these alone; where only one
may, nothing is drawn. This mask is a part of the policy: the trainer scores drawn tokens under the
same choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Choices = NDArray[np.int64]  # the tokens of which one is drawn, in rising order

LOW = -1e30  # the logit of a token that may not be drawn: finite, so that 0 times it is 0


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices at n positions side by side. The head computes the logits of no other token."""

    tokens: NDArray[np.int64]  # [U] all tokens that are a choice anywhere, in rising order
    closed: NDArray[np.bool_]  # [n, U] True where one is no choice; its logit is LOW there

    @classmethod
    def of(cls, choices: Sequence[Choices]) -> Options:
        lengths = np.array([*map(len, choices)])
        ids = np.concatenate(choices)
        column = np.zeros(ids.max() + 1, np.int64)  # of each token; faster than sorting them
        column[ids] = 1
        tokens = np.flatnonzero(column)
        column[tokens] = np.arange(len(tokens))
        closed = np.ones((len(choices), len(tokens)), bool)
        closed[np.repeat(np.arange(len(choices)), lengths), column[ids]] = False
        return cls(tokens=tokens, closed=closed)


@dataclass(frozen=True, eq=False)
class AnswerList:
    """Answers sorted by their tokens, so those that begin alike are neighbours."""

    words: tuple[str, ...]  # of each row
    rank: NDArray[np.int64]  # [words] the row of each word, in the order in which they were given
    columns: NDArray[np.int64]  # [tokens, rows], -1 behind the end of an answer

    @classmethod
    def of(cls, answers: Iterable[tuple[str, Sequence[int]]]) -> AnswerList:
        """The list of words and the tokens of their answers, none of which begins another one."""
        pairs = [(tuple(ids), word) for word, ids in answers]
        order = sorted(range(len(pairs)), key=pairs.__getitem__)
        texts = [pairs[i][0] for i in order]
        for before, text in pairwise(texts):
            assert text[: len(before)] != before, f"the answer {before} begins another one"
        columns = np.full((max(map(len, texts)), len(texts)), -1, np.int64)
        for row, ids in enumerate(texts):
            columns[: len(ids), row] = ids
        return cls(tuple(pairs[i][1] for i in order), np.argsort(order), columns)

    def begin(self, words: NDArray[np.integer] | None = None) -> OpenAnswer:
        """An answer that may become any of some words, by their numbers as given, or of all."""
        if words is None or len(words) == len(self.words):
            return self._all
        mask = np.zeros(len(self.words), bool)
        mask[self.rank[words]] = True
        return OpenAnswer(self, np.flatnonzero(mask))

    @cached_property
    def _all(self) -> OpenAnswer:
        return OpenAnswer(self, np.arange(len(self.words)))

    def ids(self, word: str) -> list[int]:
        """The tokens of a word's answer, empty for a word that is not in the list."""
        if word not in self.words:
            return []
        column = self.columns[:, self.words.index(word)]
        return column[column >= 0].tolist()


@dataclass(frozen=True, eq=False)
class OpenAnswer:
    """How far an answer has come, and which answers of a list it may become."""

    answers: AnswerList
    left: NDArray[np.int64]  # their rows, in rising order; all begin with the same tokens
    length: int = 0  # how many tokens that are
    _children: dict[int, OpenAnswer | str] = field(default_factory=dict)  # by after()

    @cached_property
    def choices(self) -> Choices:
        """The tokens that may come next."""
        column = self._column
        if len(column) == 1:
            return column
        return column[np.append(True, column[1:] != column[:-1])]

    def after(self, token: int) -> OpenAnswer | str:
        """The same answer with one of the choices added, or its word when it is complete."""
        if token not in self._children:
            rows = self.left
            if len(self._column) > 1:
                rows = rows[slice(*np.searchsorted(self._column, (token, token + 1)))]
            length, columns = self.length + 1, self.answers.columns
            ended = length == len(columns) or columns[length, rows[0]] < 0
            word = self.answers.words[rows[0]]
            self._children[token] = word if ended else OpenAnswer(self.answers, rows, length)
        return self._children[token]

    @cached_property
    def _column(self) -> NDArray[np.int64]:
        """The next token of each answer left; where it is the same one for all, only once."""
        column = self.answers.columns[self.length]
        if column[self.left[0]] == column[self.left[-1]]:  # they are sorted
            return column[self.left[:1]]
        return column.take(self.left)

    def pattern(self) -> str:
        """The letters that all words left have in the same places, and _ for the others."""
        columns = zip(*(self.answers.words[row] for row in self.left), strict=True)
        return "".join(column[0] if len(set(column)) == 1 else "_" for column in columns)
