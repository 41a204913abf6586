"""Work on a batch in micro-batches, which become smaller when memory runs out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.batch import (
    Batch,
    DoesNotFit,
    ran_out_of_memory,
    split_by_prompt,
    split_micro_batches,
)
from wordle_rl.training.progress import print_line

Rows = NDArray[np.int64]


class MicroBatches:
    """Splits batches into micro-batches of at most `tokens` padded tokens.

    When one of them does not fit into memory, the limit becomes half its size for the rest of the
    run.
    """

    def __init__(self, tokens: int, *, by_prompt: bool = False) -> None:
        """by_prompt: whether the model computes once what all rows of a micro-batch begin with."""
        if tokens < 1:
            raise ValueError(f"backend.micro_batch_tokens must be 1 or more, not {tokens}")
        self.tokens = tokens
        self._split = split_by_prompt if by_prompt else split_micro_batches
        self._halved = 0

    def run(
        self,
        batch: Batch,
        work: Callable[[Rows], None],
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """Do the work on the rows of each micro-batch.

        begin: called first, and again whenever memory ran out. It undoes all work, because a failed
        backward pass may have left a part of its gradient. Raises DoesNotFit when a micro-batch
        does not fit that cannot be split.
        """
        while (failed := self._try(batch, work, begin)) is not None:
            self._halve(batch, failed)

    def _try(
        self, batch: Batch, work: Callable[[Rows], None], begin: Callable[[], None]
    ) -> Rows | None:
        """Do all the work. Returns the rows that did not fit into memory, if there are any."""
        begin()
        for rows in self._split(batch, self.tokens):
            try:
                work(rows)
            except RuntimeError as error:
                if not ran_out_of_memory(error):
                    raise
                return rows  # the error goes, and with it the tensors that its frames hold
        return None

    def _halve(self, batch: Batch, failed: Rows) -> None:
        """Lower the limit after some rows did not fit."""
        width = int(batch.lengths[failed].max())
        if len(failed) == 1 or (batch.units is not None and len(set(batch.units[failed])) == 1):
            raise DoesNotFit(sequences=len(failed), tokens=width)
        self.tokens = len(failed) * width // 2
        self._halved += 1
        print_line(
            f"out of memory with {len(failed)} x {width} tokens: from now on a micro-batch has at "
            f"most {self.tokens}, as with backend.micro_batch_tokens={self.tokens}"
        )

    def take_halved(self) -> int:
        """How often the limit was halved since the last call."""
        halved, self._halved = self._halved, 0
        return halved
