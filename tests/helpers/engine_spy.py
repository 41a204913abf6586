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
        drawn = self.inner.complete(prompts, *rest)
        self.most = max(self.most, len(prompts))
        for ids, answer in zip(prompts, drawn, strict=True):
            self.asked.append((list(ids), list(answer.ids)))
        return drawn

    @property
    def conversations(self) -> list[tuple[list[int], list[bool]]]:
        """All ids of each conversation that no later one continues, and which of them were drawn.

        For conversations of which each goes on from one that was asked before.
        """
        whole: list[tuple[list[int], list[bool]]] = []
        for prompt, answer in self.asked:
            known = [talk for talk in whole if talk[0] == prompt[: len(talk[0])]]
            before = max(known, key=lambda talk: len(talk[0]), default=([], []))
            whole = [talk for talk in whole if talk is not before]
            between = [False] * (len(prompt) - len(before[0]))
            whole.append(([*prompt, *answer], [*before[1], *between, *[True] * len(answer)]))
        return whole
