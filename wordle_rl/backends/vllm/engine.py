"""The rollout engine on vLLM servers, which keep no state of a run.

Each answer sends its whole prompt. The server's prefix cache makes that cheap, so a conversation
stays with one server.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.engine import find_beginnings
from wordle_rl.backends.vllm.pool import Job, Pool
from wordle_rl.backends.vllm.server import Request
from wordle_rl.policy.engine import Completion, Prompts, check_prompts
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
        self.max_context = max_context
        self._pool, self._stop_ids, self._vocabulary = pool, stop_ids, vocabulary
        self._timers = timers or Timers()
        self._seen: dict[tuple[int, ...], int] = {}  # conversation -> number of its server

    def complete(
        self, prompts: Prompts, sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> list[Completion]:
        """See wordle_rl.policy.engine.Engine. Raises EngineLost."""
        check_prompts(prompts, self.max_context)
        servers = self._choose_servers(prompts)
        found: dict[int, Completion] = {}
        with self._timers("decode"):
            jobs = self._jobs(prompts, servers, sampling)
            answers = self._pool.answer([job for _, job in jobs])
            for (members, _), drawn in zip(jobs, answers, strict=True):
                found |= dict(zip(members, drawn, strict=True))
        completions = [found[i] for i in range(len(prompts))]
        self._seen = {
            (*ids, *drawn.ids): server
            for ids, drawn, server in zip(prompts, completions, servers, strict=True)
        }
        return completions

    def next_logprobs(self, prompts: Prompts) -> NDArray[np.float32]:
        """See wordle_rl.policy.engine.Engine. Raises EngineLost."""
        check_prompts(prompts, self.max_context)
        return self._pool.next_logprobs([list(ids) for ids in prompts], self._vocabulary)

    def _choose_servers(self, prompts: Prompts) -> list[int]:
        """The server that knows most of each prompt. New prompts are dealt out in turn."""
        known = list(self._seen)
        found = find_beginnings([tuple(ids) for ids in prompts], known)
        return [
            self._seen[known[row]] if shared else i % self._pool.size
            for i, (row, shared) in enumerate(found)
        ]

    def _jobs(
        self, prompts: Prompts, servers: list[int], sampling: Sampling
    ) -> list[tuple[list[int], Job]]:
        """Requests for the answers, each with the numbers of its prompts."""
        together: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for i, (ids, server) in enumerate(zip(prompts, servers, strict=True)):
            together[server, min(sampling.max_tokens, self.max_context - len(ids))].append(i)
        size, jobs = self._pool.prompts_at_once, []
        for (server, most), members in together.items():
            for part in (members[i : i + size] for i in range(0, len(members), size)):
                request = Request(
                    prompts=[list(prompts[i]) for i in part], sampling=sampling, most=most,
                    stop_ids=self._stop_ids, vocabulary=self._vocabulary,
                )  # fmt: skip
                jobs.append((part, Job(place=server, request=request)))
        return jobs
