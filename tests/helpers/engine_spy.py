"""An engine that keeps a record of its own of what passes through it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wordle_rl.policy.engine import Completion


@dataclass
class Spy:
    """Stands between the driver and the engine, and keeps what passes: the independent record."""

    inner: Any
    asked: list[tuple[list[int], list[int]]] = field(default_factory=list)  # prompts and answers
    most: int = 0  # prompts at once

    @property
    def max_context(self) -> int:
        return self.inner.max_context

    def complete(self, prompts: Sequence[Sequence[int]], *rest: Any) -> list[Completion]:
        completions = self.inner.complete(prompts, *rest)
        self.most = max(self.most, len(prompts))
        for ids, answer in zip(prompts, completions, strict=True):
            self.asked.append((list(ids), list(answer.ids)))
        return completions

    @property
    def conversations(self) -> list[tuple[list[int], list[bool]]]:
        """All ids of each conversation that no later one continues, and which of them were drawn.

        For conversations of which each goes on from one that was asked before.
        """
        talks: list[tuple[list[int], list[bool]]] = []
        for prompt, answer in self.asked:
            matches = [talk for talk in talks if talk[0] == prompt[: len(talk[0])]]
            start = max(matches, key=lambda talk: len(talk[0]), default=([], []))
            talks = [talk for talk in talks if talk is not start]
            gap = [False] * (len(prompt) - len(start[0]))
            talks.append(([*prompt, *answer], [*start[1], *gap, *[True] * len(answer)]))
        return talks
