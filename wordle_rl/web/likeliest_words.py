"""The words that a model would guess next, likeliest first, with their probabilities.

The probability of a word is that of one whole answer at temperature 1: the tokens in which the form
writes this guess, and the token that ends an answer. The same guess in other tokens is not counted.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Engine
from wordle_rl.policy.grammar import AnswerList
from wordle_rl.rollouts.likeliest import Beginning, Search
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
    letters: tuple[dict[str, float], ...]  # by place, those that words and beginnings have there


def equal_chances(words: Sequence[str]) -> WordChances:
    """The chances of a player that guesses one of these words, each equally likely."""
    chances = dict.fromkeys(words, 1 / len(words))
    return WordChances(
        words=chances, untried=0.0, other=0.0, exact=True, letters=_add_up_letters(chances.items())
    )


def find_likeliest(
    engine: Engine,
    prompt: Sequence[int],
    answers: AnswerList,
    *,
    count: int = 10,
    most: int = 10_000,
    stop: Callable[[], bool] = lambda: False,
    also: str | None = None,
) -> WordChances:
    """Find the likeliest answers of a list after a prompt. Raises ContextFull.

    count: so many likeliest words must be certain. most: beginnings that are tried. stop: asked
    whether to end earlier. also: a word whose probability is computed in any case.
    """
    search = Search()
    search.add(Beginning(answers.begin()))
    trials = 0
    while search.open and trials < most and not stop():
        if search.is_certain(count) and _sum_of(search.open) < _REST:
            break
        block = search.take(min(_BLOCK, most - trials))
        trials += len(block)
        for beginning, row in zip(
            block, _next_logprobs(engine, prompt, [b.ids for b in block]), strict=True
        ):
            search.grow(beginning, row)
    chances = {answer.word: math.exp(answer.logprob) for answer in search.found if answer.word}
    untried = _sum_of(search.open)
    patterns = ((b.place.pattern(), math.exp(b.logprob)) for b in search.open if b.place)
    other = max(0.0, 1.0 - untried - math.fsum(chances.values()))
    exact = search.is_certain(count)
    letters = _add_up_letters(itertools.chain(chances.items(), patterns))
    if also is not None and also not in chances and (answer := answers.ids(also)):
        beginnings = [tuple(answer[:length]) for length in range(len(answer))]
        steps = _next_logprobs(engine, prompt, beginnings)[np.arange(len(answer)), answer]
        chances[also] = math.exp(float(steps.sum(dtype=np.float64)))
        untried = max(0.0, untried - chances[also])
    return WordChances(
        words=_likeliest_first(chances), untried=untried, other=other, exact=exact, letters=letters
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


def _sum_of(beginnings: Iterable[Beginning]) -> float:
    return math.fsum(math.exp(beginning.logprob) for beginning in beginnings)


def _likeliest_first(chances: dict[str, float]) -> dict[str, float]:
    """The same entries by falling probability, then by the alphabet."""
    return dict(sorted(chances.items(), key=lambda item: (-item[1], item[0])))
