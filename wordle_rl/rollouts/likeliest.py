"""The likeliest whole answers, by beam search (`sampling.beams`).

Token by token, a model may begin a word that it cannot end well. Here whole answers are compared,
by the probability that the model gives them without a grammar. An answer is never likelier than
its prefix. So a finished answer that is at least as likely as every open prefix is the likeliest.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Completion, Engine, Prompts, StopReason
from wordle_rl.policy.grammar import OpenAnswer


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first tokens of answers."""

    place: OpenAnswer | None  # None without a grammar, or when complete
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    word: str | None = None  # of a complete answer under a grammar
    stop: StopReason | None = None  # why it is complete, None if it is not

    @property
    def logprob(self) -> float:
        return math.fsum(self.logprobs)


@dataclass(eq=False)
class Search:
    """The search behind one prompt."""

    stop_ids: frozenset[int] = frozenset()  # that end an answer without a grammar
    most: int = 10**9  # tokens of such an answer
    branches: int = 10**9  # tokens that may follow a beginning, the likeliest ones
    found: list[Beginning] = field(default_factory=list)  # complete answers
    _open: list[tuple[float, int, Beginning]] = field(default_factory=list)  # a heap
    _order: Iterator[int] = field(default_factory=itertools.count)  # breaks ties

    @property
    def open(self) -> list[Beginning]:
        """Beginnings that were not tried yet."""
        return [beginning for _, _, beginning in self._open]

    def add(self, beginning: Beginning) -> None:
        if beginning.stop is None:
            heapq.heappush(self._open, (-beginning.logprob, next(self._order), beginning))
        else:
            self.found.append(beginning)

    def take(self, most: int) -> list[Beginning]:
        """Take the likeliest beginnings, to try them."""
        return [heapq.heappop(self._open)[-1] for _ in range(min(most, len(self._open)))]

    def keep(self, most: int) -> None:
        """Forget all beginnings but the likeliest."""
        self._open = heapq.nsmallest(most, self._open)

    def grow(self, beginning: Beginning, logprobs: NDArray[np.float32]) -> None:
        """Add what goes on from a beginning. logprobs: [V] of every token behind it."""
        node = beginning.place
        tokens = np.arange(len(logprobs)) if node is None else node.choices
        if len(tokens) > self.branches:
            tokens = tokens[np.argpartition(-logprobs[tokens], self.branches)[: self.branches]]
        for token in tokens.tolist():
            ids = (*beginning.ids, token)
            word, stop, after = None, None, None
            if node is not None:
                child = node.after(token)
                if isinstance(child, str):
                    word, stop = child, StopReason.STOP_TOKEN
                else:
                    after = child
            elif token in self.stop_ids:
                stop = StopReason.STOP_TOKEN
            elif len(ids) >= self.most:
                stop = StopReason.TOKEN_LIMIT
            scores = (*beginning.logprobs, float(logprobs[token]))
            self.add(Beginning(after, ids, scores, word, stop))

    def is_certain(self, count: int = 1) -> bool:
        """Whether no other answer can be among the `count` likeliest."""
        if not self._open:
            return True
        best = heapq.nlargest(count, (answer.logprob for answer in self.found))
        return len(best) == count and best[-1] >= -self._open[0][0]


def complete_likeliest(
    engine: Engine,
    prompts: Prompts,
    grammar: Sequence[OpenAnswer] | None,
    *,
    beams: int,
    stop_ids: frozenset[int],
    max_tokens: int,
) -> list[Completion]:
    """The likeliest answer found to each prompt, of all texts or of those that a grammar allows.

    beams: how many beginnings are followed; with 1 it is the likeliest token again and again.
    stop_ids, max_tokens: what ends an answer without a grammar. The log-probabilities are the
    model's own, at temperature 1. Raises as Engine.complete().
    """
    nodes = grammar or [None] * len(prompts)
    keys = [(tuple(ids), node) for ids, node in zip(prompts, nodes, strict=True)]
    searches: dict[tuple, Search] = {}
    for ids, node in keys:
        if (ids, node) not in searches:  # what is asked several times is searched once
            search = Search(stop_ids, min(max_tokens, engine.max_context - len(ids)), beams)
            search.add(Beginning(node))
            searches[ids, node] = search
    while open_searches := {key: s for key, s in searches.items() if not s.is_certain()}:
        block = [(k, s, b) for k, s in open_searches.items() for b in s.take(beams)]
        logprobs = engine.next_logprobs([(*ids, *b.ids) for (ids, _), _, b in block])
        for (_, search, beginning), row in zip(block, logprobs, strict=True):
            search.grow(beginning, row)
        for search in open_searches.values():
            search.keep(beams)
    best = [max(searches[key].found, key=lambda answer: answer.logprob) for key in keys]
    return [
        Completion(ids=list(b.ids), logprobs=list(b.logprobs), stop=b.stop or StopReason.STOP_TOKEN)
        for b in best
    ]
