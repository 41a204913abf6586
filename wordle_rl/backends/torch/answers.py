"""The answers of several rows while their tokens are drawn, some tokens at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Completion, StopReason

_REASONS = list(StopReason)
_CONTINUES = -1  # no reason to stop


class Answers:
    """n answers of at most `most` tokens. Numbers in `at` say which answers are meant."""

    def __init__(self, n: int, most: int, stop_ids: list[int]) -> None:
        self._stop_ids = stop_ids
        self.ids = np.zeros((n, most), np.int64)
        self._logprobs = np.zeros((n, most))
        self._counts = np.zeros(n, np.int64)  # of tokens; 0 until the answer ends
        self._reasons = np.zeros(n, np.int64)  # indices into _REASONS
        self.drawn = 0  # tokens of each row so far

    def are_live(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some answers have not ended."""
        return self._counts[at] == 0

    def add(
        self,
        at: NDArray[np.int64],
        drawn: tuple[NDArray[np.int64], NDArray[np.float32]],
        room: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Add the next tokens and their log-probabilities, both [m, T], to some answers [m].

        room: [m] tokens that fit into each row's context. Returns [m] how many of the T tokens
        belong to each answer, 0 for one that had ended before.
        """
        reasons = self._find_stops(drawn[0], room)
        rows, size = np.arange(len(at)), reasons.shape[1]
        block = slice(self.drawn, self.drawn + size)
        self.ids[at, block], self._logprobs[at, block] = drawn
        live = self.are_live(at)
        first = (reasons != _CONTINUES).argmax(1)  # 0 also where no token ends the answer
        ending = live & (reasons[rows, first] != _CONTINUES)
        self._counts[at[ending]] = self.drawn + first[ending] + 1
        self._reasons[at[ending]] = reasons[ending, first[ending]]
        self.drawn += size
        return np.where(ending, first + 1, size * live)

    def _find_stops(self, drawn: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
        """Why each of the tokens [m, T] would end its answer, as indices into _REASONS."""
        size = drawn.shape[1]
        full = np.arange(1, size + 1) >= room[:, None]
        reasons = np.where(full, _REASONS.index(StopReason.CONTEXT_FULL), _CONTINUES)
        if self.drawn + size == self.ids.shape[1]:
            reasons[:, -1] = _REASONS.index(StopReason.TOKEN_LIMIT)
        reasons[np.isin(drawn, self._stop_ids)] = _REASONS.index(StopReason.STOP_TOKEN)
        return reasons

    def complete(self) -> list[Completion]:
        """All answers, which must have ended."""
        return [
            Completion(ids=i[:count].tolist(), logprobs=p[:count].tolist(), stop=_REASONS[reason])
            for i, p, count, reason in zip(
                self.ids, self._logprobs, self._counts, self._reasons, strict=True
            )
        ]
