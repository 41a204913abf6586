"""The rollout engine on vLLM servers. Rows are lists of token ids, and the servers keep no state.

A row's tokens are sent again for each answer. The server's prefix cache makes that cheap, so the
answers of a row come from one server as long as it plays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.vllm.pool import Job, Pool
from wordle_rl.backends.vllm.server import Request
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.timing import Timers


class VllmEngine:
    """Implements wordle_rl.policy.engine.Engine. The uniforms of a draw are not used."""

    def __init__(
        self,
        pool: Pool,
        *,
        stop_ids: frozenset[int],
        max_context: int,
        vocabulary: int,
        timers: Timers | None = None,
    ) -> None:
        self._pool = pool
        self._stop_ids = stop_ids
        self._max_context = max_context
        self._vocabulary = vocabulary
        self._timers = timers or Timers()
        self._tokens: dict[int, list[int]] = {}  # row -> everything fed and drawn
        self._waiting: set[int] = set()  # rows that were extended since they last answered
        self._next_row = 0

    def open(self, n: int) -> list[int]:
        rows = list(range(self._next_row, self._next_row + n))
        self._next_row += n
        self._tokens |= {row: [] for row in rows}
        return rows

    def release(self, rows: Sequence[int]) -> None:
        for row in rows:
            del self._tokens[row]
            self._waiting.discard(row)

    def fork(self, row: int, n: int) -> list[int]:
        rows = self.open(n)
        for new in rows:
            self._tokens[new] = list(self._tokens[row])
            if row in self._waiting:
                self._waiting.add(new)
        return rows

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> list[bool]:
        fits = []
        for row, new in zip(rows, ids, strict=True):
            if not new:
                raise ValueError("extend needs at least one token per row")
            tokens = self._tokens[row]
            fits.append(len(tokens) + len(new) < self._max_context)
            if fits[-1]:
                tokens += new
                self._waiting.add(row)
        return fits

    def decode(
        self, rows: Sequence[int], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        self._check_waiting(rows)
        found: dict[int, Completion] = {}
        with self._timers("decode"):
            jobs = self._jobs(rows, sampling)
            for (members, _), answers in zip(
                jobs, self._pool.answer([j for _, j in jobs]), strict=True
            ):
                found |= dict(zip(members, answers, strict=True))
        for row, completion in found.items():
            self._tokens[row] += completion.ids
        self._waiting.difference_update(rows)
        return [found[row] for row in rows]

    def next_logprobs(self, rows: Sequence[int]) -> NDArray[np.float32]:
        self._check_waiting(rows)
        return self._pool.next_logprobs([self._tokens[row] for row in rows], self._vocabulary)

    def _check_waiting(self, rows: Sequence[int]) -> None:
        if not self._waiting.issuperset(rows):
            raise ValueError("decode needs rows that were extended since they last answered")

    def _jobs(self, rows: Sequence[int], sampling: Sampling) -> list[tuple[list[int], Job]]:
        """Requests for answers of some rows, each with the rows that it is for."""
        together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for row in rows:
            room = self._max_context - len(self._tokens[row])
            together[row % self._pool.size, min(sampling.max_tokens, room)].append(row)
        size = self._pool.prompts_at_once
        return [
            (part, self._job(part, place, most, sampling))
            for (place, most), members in together.items()
            for part in (members[i : i + size] for i in range(0, len(members), size))
        ]

    def _job(self, rows: Sequence[int], place: int, most: int, sampling: Sampling) -> Job:
        request = Request(
            prompts=[self._tokens[row] for row in rows], sampling=sampling, most=most,
            stop_ids=self._stop_ids, vocabulary=self._vocabulary,
        )  # fmt: skip
        return Job(place=place, request=request)
