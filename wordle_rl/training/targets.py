"""A teacher's answers as distributions over the next token.

A single guess, drawn from hundreds of equally good ones, is a noisy lesson. Training on the
teacher's whole distribution has the same expected gradient without that noise.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wordle_rl.game.players import Teacher
from wordle_rl.game.rules import Game, State
from wordle_rl.policy.batch import TokenTargets
from wordle_rl.rollouts.forms import Form
from wordle_rl.rollouts.talk import Talk
from wordle_rl.rollouts.teacher import TeacherSettings

ASTRAY = 0.1  # weight in the loss of a token of an answer that is wrong already

Parts = tuple[NDArray, NDArray, NDArray]  # positions, ids and probabilities of targets


class TokenTeacher:
    """Computes a teacher's distribution over each next token, for one tokenizer and form."""

    def __init__(self, lesson: TeacherSettings, form: Form) -> None:
        assert isinstance(lesson.player, Teacher)
        self._teacher, self._form = lesson.player, form
        self._ids = _pad_rows([self._guess(word) for word in lesson.player.pool])
        self._fallbacks: list[_TextCounts] = []
        if lesson.guessable:
            rows = _pad_rows([self._guess(word) for word in lesson.guessable])
            self._fallbacks = [_TextCounts(self._ids), _TextCounts(rows)]

    def _guess(self, word: str) -> list[int]:
        return self._form.chat.answer(self._form.write(word))

    def of_talk(self, game: Game, talk: Talk) -> TokenTargets:
        """Targets at the trained positions of a conversation of the teacher's game."""
        parts = [
            self.targets(game.turns[i].state, talk.ids[part.start : part.stop], part.start)
            for i, part in talk.answers.items()
            if talk.trained[part.start]
        ]
        targets = _join([(p.places, p.ids, p.probabilities) for p in parts])
        return replace(targets, astray=np.concatenate([p.astray for p in parts]))

    def targets(self, state: State, answer: Sequence[int], start: int) -> TokenTargets:
        """Targets of an answer's tokens, each given the tokens before it.

        answer: ids of an answer in this state. start: its position in the sequence. Where no answer
        of the teacher begins so, any word of its pool is the target, then any allowed word, and
        then nothing. Raises ValueError for an answer that nobody may give.
        """
        try:
            choices = self._teacher.choices(state)
            return _compute_targets(self._ids[choices], answer, start, self._fallbacks)
        except LookupError:
            raise ValueError(f"the teacher would not answer {list(answer)} in {state}") from None


# A run has one, and its counts are worth keeping from step to step.
build_token_teacher = lru_cache(maxsize=1)(TokenTeacher)


def _pad_rows(texts: Sequence[list[int]]) -> NDArray[np.int64]:
    """Ids of several texts as [texts, tokens], with -1 after each end."""
    rows = np.full((len(texts), max(map(len, texts))), -1, np.int64)
    for row, ids in zip(rows, texts, strict=True):
        row[: len(ids)] = ids
    return rows


class _TextCounts:
    """How many texts of a list begin with some tokens, by the token that follows.

    Answers are kept, because most answers begin like earlier ones.
    """

    def __init__(self, texts: NDArray[np.int64]) -> None:
        self._texts = np.ascontiguousarray(texts.T)  # [tokens, texts]
        self._cache: dict[tuple[int, ...], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def after(self, prefix: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Next tokens in rising order, and how many texts have each; -1 is behind the end."""
        if prefix not in self._cache:
            fitting = np.ones(self._texts.shape[1], dtype=bool)
            for column, token in zip(self._texts, prefix, strict=False):
                fitting &= column == token
            next_tokens = self._texts[len(prefix) :][:1]  # none behind the longest text
            self._cache[prefix] = np.unique(next_tokens[:, fitting], return_counts=True)
        return self._cache[prefix]


def _compute_targets(
    texts: NDArray[np.int64], text: Sequence[int], start: int, fallbacks: Sequence[_TextCounts] = ()
) -> TokenTargets:
    """Targets of the tokens of a text drawn from equally likely texts.

    texts: [texts, tokens]. start: position of the drawn text. fallbacks: counts of the texts to
    take where no text is left, the first ones that have any. Raises LookupError if no text is the
    drawn one.
    """
    parts: list[Parts] = []
    astray: list[int] = []
    for i, token in enumerate(text):
        column = texts[:, min(i, texts.shape[1] - 1)]  # none is left behind the longest text
        values, counts = np.unique(column, return_counts=True)
        if fallbacks and not len(texts):
            astray.append(start + i)
        for fallback in () if len(texts) else fallbacks:
            values, counts = fallback.after(tuple(text[:i]))
            if len(values):
                break
        parts.append((np.full(len(values), start + i), values, counts / counts.sum()))
        if token not in values and not fallbacks:
            raise LookupError
        texts = texts[column == token]
    return replace(_join(parts), astray=np.array(astray, np.int64))


def _join(parts: Sequence[Parts]) -> TokenTargets:
    """Positions, ids and probabilities, put together."""
    empty = np.zeros(0)
    positions, ids, probabilities = map(np.concatenate, zip((empty,) * 3, *parts, strict=True))
    return TokenTargets(
        places=positions.astype(np.int64),
        ids=ids.astype(np.int64),
        probabilities=probabilities.astype(np.float32),
    )
