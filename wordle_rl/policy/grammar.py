"""Which tokens an answer may go on with, where only answers of a given list may be drawn.

The answers stand in a tree of their tokens. Where several tokens may follow, the model's
distribution is taken over these alone; where only one may, nothing is drawn. This mask is a part of
the policy: the trainer scores drawn tokens under the same choices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Choices = NDArray[np.int64]  # the tokens of which one is drawn, in rising order

LOW = -1e30  # the logit of a token that may not be drawn: finite, so that 0 times it is 0


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices at n places side by side. The head computes the logits of no other token."""

    tokens: NDArray[np.int64]  # [U] all tokens that are a choice anywhere, in rising order
    closed: NDArray[np.bool_]  # [n, U] True where one is no choice; its logit is LOW there

    @classmethod
    def of(cls, choices: Sequence[Choices]) -> Options:
        lengths = np.array([*map(len, choices)])
        tokens, columns = np.unique(np.concatenate(choices), return_inverse=True)
        closed = np.ones((len(choices), len(tokens)), bool)
        closed[np.repeat(np.arange(len(choices)), lengths), columns] = False
        return cls(tokens=tokens, closed=closed)


@dataclass(slots=True, eq=False)
class AnswerTree:
    """Answers by their tokens: each branch is a token, and each leaf a word."""

    branches: dict[int, AnswerTree | str] = field(default_factory=dict)
    size: int = 0  # words
    choices: Choices = field(init=False)  # all tokens that branch off

    @classmethod
    def grow(cls, answers: Iterable[tuple[str, Sequence[int]]]) -> AnswerTree:
        """The tree of words and the tokens of their answers, none of which begins another one."""
        root = cls()
        nodes = [root]
        for word, ids in answers:
            node = root
            for token in ids[:-1]:
                node.size += 1
                if token not in node.branches:
                    nodes.append(cls())
                    node.branches[token] = nodes[-1]
                below = node.branches[token]
                assert isinstance(below, AnswerTree), f"the answer {word} begins with another one"
                node = below
            node.size += 1
            node.branches[ids[-1]] = word
        for node in nodes:
            node.choices = np.array(sorted(node.branches), np.int64)
        return root

    def words(self) -> Iterator[str]:
        """All words of the tree."""
        for below in self.branches.values():
            if isinstance(below, str):
                yield below
            else:
                yield from below.words()

    def pattern(self) -> str:
        """The letters that all words of the tree have in the same places, and _ for the others."""
        columns = zip(*self.words(), strict=True)
        return "".join(column[0] if len(set(column)) == 1 else "_" for column in columns)

    def path(self, word: str) -> list[int]:
        """The tokens of a word's answer, empty for a word that the tree does not have."""
        for token, below in self.branches.items():
            if below == word:
                return [token]
            if isinstance(below, AnswerTree) and (rest := below.path(word)):
                return [token, *rest]
        return []


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """How far an answer has come in a tree, and which answers of the tree it may not become.

    without: the rest of the tokens of each answer that is taken out. They differ.
    """

    tree: AnswerTree
    without: tuple[Sequence[int], ...] = ()

    @property
    def choices(self) -> Choices:
        """The tokens that may come next."""
        if not self.without:
            return self.tree.choices
        gone = Counter(rest[0] for rest in self.without)
        branches = self.tree.branches
        left = [token for token, below in branches.items() if _size(below) > gone[token]]
        return np.array(sorted(left), np.int64)

    def after(self, token: int) -> OpenAnswer | None:
        """The same answer with one of the choices added, None when it is complete."""
        below = self.tree.branches[token]
        if isinstance(below, str):
            return None
        return OpenAnswer(below, tuple(rest[1:] for rest in self.without if rest[0] == token))


def _size(below: AnswerTree | str) -> int:
    return 1 if isinstance(below, str) else below.size
