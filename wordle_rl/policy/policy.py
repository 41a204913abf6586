"""A language model that plays, scores and learns: micro-batches, the loss, metrics, failed updates.

A Policy says what is computed, the same on every backend. Its Machine computes it: a model with its
weights, gradients and optimisers, which calls nothing above it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from wordle_rl.algorithms.base import Algorithm, Needs
from wordle_rl.policy.batch import (
    Batch,
    DoesNotFit,
    FloatArray,
    RowIndex,
    ran_out_of_memory,
    split_distinct,
    split_halves,
    split_padded,
    take,
)
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.engine import Engine, NotFinite
from wordle_rl.policy.prefix_cache import CachedEngine, CachedModel
from wordle_rl.policy.token_outputs import LARGEST, LanguageModel
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers

T = TypeVar("T")
Reader = Callable[[Batch], FloatArray]  # log-probabilities [N, T] of the trained tokens, else 0


class Machine(Protocol):
    """A backend's model, with the gradients and optimisers of its weights."""

    lm: Any  # the backend's LanguageModel
    tokenizer: HFTokenizer
    precision: Precision
    timers: Timers
    scale_fell: bool  # whether fp16 could not hold the gradients, and has a smaller scale next time

    @property
    def device_bytes(self) -> int: ...  # memory in use on the accelerator, 0 on the CPU

    @property
    def num_parameters(self) -> tuple[int, int]: ...  # trainable and all

    @property
    def is_finite(self) -> bool: ...  # all weights

    def make_rows(self) -> CachedModel: ...  # an empty cache on the current weights

    def keep(self) -> Callable[[], AbstractContextManager[None]]:
        """Keep the current weights. Returns what makes a block in which they compute."""
        ...

    def add_value_head(self) -> None: ...  # linear, on the trunk's hidden states; it starts at 0

    def set_learning_rate(self, lr: float) -> None: ...

    def add_gradient(self, loss: Callable[[], tuple[Any, dict[str, Any]]]) -> dict[str, float]:
        """Accumulate the gradient of a loss. Returns the metrics that it gives, too."""
        ...

    def drop_gradients(self) -> None: ...

    def copy_gradients(self) -> Any: ...  # the gradients so far, which later ones do not change

    def multiply_gradients(self, first: Any, processes: Processes) -> tuple[float, float, float]:
        """Inner products of gradients: all with all, all with the first, the first with itself.

        first: what copy_gradients() gave, in this process alone.
        """
        ...

    def share_gradients(self, processes: Processes) -> None: ...  # makes them sums over processes

    def step(self, *, apply: bool) -> float:
        """Clip the gradients, change the weights by them, and drop them. Returns their norm before.

        Weights stay as they are without `apply`, or if the norm is not finite.
        """
        ...

    def rehearsal(self) -> Self | None: ...  # which takes no step; None where it tells nothing

    def save(self, folder: Path) -> None: ...  # model and optimisers, into an empty folder

    def load(self, folder: Path) -> None: ...  # what save() wrote

    def export(self, folder: Path) -> None:
        """Write the model or adapter and its tokenizer in the format of their library."""
        ...


M = TypeVar("M", bound=Machine)


class Policy(Generic[M]):
    """A language model that plays, scores and learns."""

    def __init__(
        self,
        machine: M,
        *,
        temperature: float = 1.0,
        micro_batch_tokens: int = 16_384,
        max_context: int = 1024,
    ) -> None:
        """micro_batch_tokens: of a forward and backward pass. max_context: of an engine."""
        self.machine, self.tokenizer, self.timers = machine, machine.tokenizer, machine.timers
        self.processes: Processes = ALONE  # replaced when more processes start
        self.computing = Computing(precision=machine.precision)  # or what the backend chose
        self.micro_batch_tokens = micro_batch_tokens  # halved when memory runs out
        self.served: Callable[[], Any] | None = None  # gives the engine of servers, if they play
        self.reference: Reader | None = None  # of a model that never changes
        self.version = 0  # raised whenever the weights may change
        self._temperature, self._max_context = temperature, max_context
        self._halvings = 0  # times since the last update
        self._first_half: Any = None  # gradient of an update's first half, from where it ends

    def engine(self) -> Engine:
        """The engine that `served` gives, or a fresh one of its own on the current weights."""
        return self.served() if self.served else self._build_engine()

    def _build_engine(self) -> CachedEngine:
        rows, stops = self.machine.make_rows(), self.tokenizer.stop_ids
        return CachedEngine(rows, stop_ids=stops, max_context=self._max_context, timers=self.timers)

    def rehearsal(self) -> Policy | None:
        """A policy that computes as this one and takes no step, to time a run with.

        None where a part of a step does not tell how long the whole one takes.
        """
        machine = None if self.served else self.machine.rehearsal()
        if machine is None:
            return None
        other = copy.copy(self)
        other.machine, other.processes = machine, ALONE
        return other

    def save(self, folder: Path) -> None:
        """Write everything a resumed run needs into an empty folder.

        Raises NotFinite for broken weights, or if what follows a stop token overflows.
        """
        if not self.machine.is_finite:
            raise NotFinite("weights")
        self._build_engine().next_logprobs([sorted(self.tokenizer.stop_ids)[:1]])
        self.machine.save(folder)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. The reference does not change.

        Raises CheckpointError when another model wrote it, or it cannot be read.
        """
        self.version += 1
        self.machine.load(folder)

    def keep_reference(self) -> None:
        """Make the current weights the reference."""
        snapshot = self.machine.keep()

        def read(batch: Batch) -> FloatArray:
            with snapshot():
                return self._read(batch)

        self.reference = read

    def set_reference(self, other: Policy, name: str) -> None:
        """Make another model the reference. Raises ConfigError if its tokens are others."""
        vocab, reference = (set(p.tokenizer.inner.get_vocab().items()) for p in (self, other))
        if vocab != reference:
            raise ConfigError(
                f"algorithm.reference={name} has another tokenizer than the model, with "
                f"{len(reference - vocab):,} other tokens or ids: choose a model of the same family"
            )
        self.reference = other.score

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        if not reference:
            with self.timers("score"):
                return self._read(batch)
        if self.reference is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        with self.timers("reference"):
            return self.reference(batch)

    def values(self, batch: Batch) -> FloatArray:
        """What the value head says [N, T] before each trained token is drawn, else 0."""
        with self.timers("values"):
            return self._read(batch, values=True)

    def _read(self, batch: Batch, *, values: bool = False) -> FloatArray:
        """What the model says of each token [N, T]: values, or log-probabilities."""
        lm: LanguageModel = self.machine.lm

        def read(part: Batch) -> FloatArray:
            with lm.without_gradients():
                outputs = lm.forward(part, self._temperature, Needs(values=values))
                return lm.to_numpy(outputs.values if values else outputs.logprobs)

        out = np.zeros(batch.ids.shape, np.float32)
        for rows, array in self.run_micro_batches(batch, read):
            out[rows, : array.shape[1]] = array
        return out

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, in micro-batches.

        Returns metrics. `update/skipped` is 1 when a loss or gradient was not finite and the
        weights stayed as they were. `update/halved` counts how often memory ran out since the last
        update. Raises DoesNotFit. With fp16 it begins again until no gradient is too large.
        """
        self.version += 1
        machine, self._first_half = self.machine, None
        totals = {"loss": 0.0, **dict.fromkeys(LARGEST, 0.0)}
        for _, part in self.run_micro_batches(batch, partial(self._learn, algorithm)):
            _merge(totals, part)
        totals |= {"tokens": float(batch.drawn.sum()), "halved": float(self._halvings)}
        self._halvings = 0
        if batch.halves is not None and self._first_half is None:  # no row of the second half
            self._first_half = machine.copy_gradients()
        if self.processes.size > 1:
            with self.timers("processes"):
                first, *others = self.processes.gather(totals)
                totals = dict(first)
                for other in others:
                    _merge(totals, other)
                machine.share_gradients(self.processes)
        agreement = {} if batch.halves is None else {"update/agreement": self._agreement()}
        is_finite = math.isfinite(totals["loss"])
        with self.timers("optimizer"):
            norm = machine.step(apply=is_finite)
        skipped = not (is_finite and math.isfinite(norm))
        if skipped and is_finite and machine.scale_fell:
            return self.update(batch, algorithm)
        outcome = {"grad_norm": norm, "update/skipped": float(skipped)}
        return _name_metrics(totals) | agreement | outcome

    def _learn(self, algorithm: Algorithm, part: Batch) -> dict[str, float]:
        """Add the gradient of a micro-batch. The first half's is kept where the second begins."""
        machine = self.machine
        if part.halves is not None and part.halves[0] and self._first_half is None:
            self._first_half = machine.copy_gradients()
        return machine.add_gradient(
            partial(machine.lm.compute_loss, part, algorithm, self._temperature)
        )

    def _agreement(self) -> float:
        """Cosine of the gradients of an update's two halves, NaN where one of them is 0."""
        total, cross, first = self.machine.multiply_gradients(self._first_half, self.processes)
        second = total - 2 * cross + first
        product = max(first, 0.0) * max(second, 0.0)
        return (cross - first) / math.sqrt(product) if product > 0.0 else math.nan

    def run_micro_batches(
        self, batch: Batch, work: Callable[[Batch], T]
    ) -> list[tuple[RowIndex, T]]:
        """Do the work on each micro-batch that has a trained token. Returns its rows and result.

        When one of them does not fit into memory, the limit becomes half its size for the rest of
        the run, and all work begins again. Raises DoesNotFit when it cannot be split.
        """
        while True:
            results, rows = self._try(batch, work)
            if rows is None:
                return results
            width = int(batch.lengths[rows].max())
            if len(rows) == 1 or (batch.units is not None and len(set(batch.units[rows])) == 1):
                raise DoesNotFit(sequences=len(rows), tokens=width)
            self.micro_batch_tokens = min(self.micro_batch_tokens, len(rows) * width) // 2
            self._halvings += 1
            print(
                f"out of memory with {len(rows)} x {width} tokens: from now on a micro-batch has "
                f"at most {self.micro_batch_tokens}, as with "
                f"backend.micro_batch_tokens={self.micro_batch_tokens}",
                flush=True,
            )

    def _try(
        self, batch: Batch, work: Callable[[Batch], T]
    ) -> tuple[list[tuple[RowIndex, T]], RowIndex | None]:
        """Do all the work. Returns the rows that did not fit into memory, too, if there are any."""
        results = []
        split = split_distinct if self.machine.lm.computes_once else split_padded
        for rows in split_halves(batch, partial(split, max_tokens=self.micro_batch_tokens)):
            try:
                if batch.trained[rows].any():
                    results.append((rows, work(take(batch, rows))))
            except (RuntimeError, MemoryError) as error:
                self.machine.drop_gradients()  # a failed backward pass may have left a part of it
                self._first_half = None
                if not ran_out_of_memory(error):
                    raise
                return results, rows  # the error goes, and with it the tensors that its frames hold
        return results, None


def _merge(totals: dict[str, float], part: Mapping[str, float]) -> None:
    """Add the metrics of a micro-batch or process."""
    for name, value in part.items():
        total = totals.get(name, 0.0)
        totals[name] = max(total, value) if name in LARGEST else total + value


def _name_metrics(totals: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an update by name: sums become means over the drawn tokens."""
    rest = dict(totals)
    loss, halvings, tokens = (rest.pop(name) for name in ("loss", "halved", "tokens"))
    means = {
        f"policy/{name}": value if name in LARGEST else value / max(tokens, 1.0)
        for name, value in rest.items()
    }
    return {**means, "loss": loss, "update/halved": halvings}
