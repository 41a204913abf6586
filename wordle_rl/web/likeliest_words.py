"""The words that a model would guess next, likeliest first, with their probabilities.

The probability of a word is the probability of one whole answer: the tokens in which the form
writes this guess, and the token that ends an answer, drawn at temperature 1 from the whole
distribution. The same guess in other tokens, such as in capitals, is another answer and is not
counted.

The search takes the likeliest beginning of an answer first. No word is likelier than its
beginning, so the first words are known to be the likeliest before most beginnings were tried.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Engine
from wordle_rl.policy.grammar import AnswerTree
from wordle_rl.words.lists import WORD_LENGTH

_BLOCK = 64  # beginnings of answers that are tried together
_REST = 1e-3  # probability of all beginnings that may stay untried


class ContextFull(ValueError):
    """The conversation leaves no room for an answer."""

    def __init__(self) -> None:
        super().__init__("the conversation fills the model's context: there is no room to answer")


@dataclass(frozen=True, kw_only=True)
class WordChances:
    """Probabilities of words as the next guess. They add up to 1 with untried and other."""

    words: dict[str, float]  # all that were found, likeliest first
    untried: float  # of all words whose probability was not computed, at most
    other: float  # of every other answer: no allowed word, or written in another way
    exact: bool  # whether the likeliest words are certain, as far as they were asked for
    # By place, the probability of each letter, likeliest first: the sum over the words found, and
    # over the untried beginnings of answers that leave no other letter there.
    letters: tuple[dict[str, float], ...]


def equal_chances(words: Sequence[str]) -> WordChances:
    """The chances of a player that guesses one of these words, each equally likely."""
    chances = dict.fromkeys(words, 1 / len(words))
    return WordChances(
        words=chances, untried=0.0, other=0.0, exact=True, letters=_add_up_letters(chances.items())
    )


def find_likeliest(
    engine: Engine,
    prompt: Sequence[int],
    tree: AnswerTree,
    *,
    count: int = 10,
    most: int = 10_000,
    stop: Callable[[], bool] = lambda: False,
    also: str | None = None,
) -> WordChances:
    """Find the likeliest answers of a tree after a prompt.

    count: so many likeliest words must be certain. most: beginnings of answers that are tried at
    most. stop: asked between blocks whether to end earlier. also: a word whose probability is
    computed in any case. Raises ContextFull.
    """
    found: dict[str, float] = {}
    order = itertools.count()  # breaks ties between equally likely beginnings
    open_ends: list[tuple[float, int, tuple[int, ...], AnswerTree]] = [(0.0, next(order), (), tree)]
    tried = 0
    while open_ends and tried < most and not stop():
        if _are_certain(found, count, open_ends) and _sum_of(open_ends) < _REST:
            break
        size = min(_BLOCK, most - tried, len(open_ends))
        block = [heapq.heappop(open_ends) for _ in range(size)]
        tried += size
        logprobs = _next_logprobs(engine, prompt, [ids for _, _, ids, _ in block])
        for (cost, _, ids, node), row in zip(block, logprobs, strict=True):
            for token, below in node.branches.items():
                total = cost - float(row[token])
                if isinstance(below, str):
                    found[below] = math.exp(-total)
                else:
                    heapq.heappush(open_ends, (total, next(order), (*ids, token), below))
    untried = _sum_of(open_ends)
    patterns = ((node.pattern(), math.exp(-cost)) for cost, _, _, node in open_ends)
    other = max(0.0, 1.0 - untried - math.fsum(found.values()))
    exact = not open_ends or _are_certain(found, count, open_ends)
    letters = _add_up_letters(itertools.chain(found.items(), patterns))
    if also is not None and also not in found and (answer := tree.path(also)):
        beginnings = [tuple(answer[:length]) for length in range(len(answer))]
        steps = _next_logprobs(engine, prompt, beginnings)[np.arange(len(answer)), answer]
        found[also] = math.exp(float(steps.sum(dtype=np.float64)))
        untried = max(0.0, untried - found[also])
    return WordChances(
        words=_likeliest_first(found), untried=untried, other=other, exact=exact, letters=letters
    )


def _add_up_letters(chances: Iterable[tuple[str, float]]) -> tuple[dict[str, float], ...]:
    """By place, the sum of the chances of words and patterns that have a letter there."""
    sums: tuple[dict[str, float], ...] = tuple({} for _ in range(WORD_LENGTH))
    for word, chance in chances:
        for place, letter in enumerate(word):
            if letter != "_":
                sums[place][letter] = sums[place].get(letter, 0.0) + chance
    return tuple(map(_likeliest_first, sums))


def _next_logprobs(
    engine: Engine, prompt: Sequence[int], beginnings: Sequence[tuple[int, ...]]
) -> NDArray[np.float32]:
    """Log-probabilities [n, V] of the next token behind the prompt and each beginning."""
    prompts = [(*prompt, *ids) for ids in beginnings]
    if max(map(len, prompts)) >= engine.max_context:
        raise ContextFull
    return engine.next_logprobs(prompts)


def _are_certain(
    found: dict[str, float], count: int, open_ends: Sequence[tuple[float, Any, Any, Any]]
) -> bool:
    """Whether no untried word can be among the first `count`."""
    if len(found) < count:
        return False
    next_best = math.exp(-open_ends[0][0])  # what an untried word has at most
    return heapq.nlargest(count, found.values())[-1] >= next_best


def _sum_of(open_ends: Sequence[tuple[float, Any, Any, Any]]) -> float:
    return math.fsum(math.exp(-cost) for cost, *_ in open_ends)


def _likeliest_first(chances: dict[str, float]) -> dict[str, float]:
    """The same entries by falling probability, then by the alphabet."""
    return dict(sorted(chances.items(), key=lambda item: (-item[1], item[0])))
