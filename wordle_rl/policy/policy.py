"""A language model that plays, scores and learns: micro-batches, the loss, metrics, failed updates.

Each backend adds how a model computes, and what its gradients and weights are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wordle_rl.algorithms.base import Algorithm, Needs
from wordle_rl.policy.batch import (
    Batch,
    DoesNotFit,
    FloatArray,
    ran_out_of_memory,
    split_distinct,
    split_halves,
    split_padded,
)
from wordle_rl.policy.computing import Computing, Precision
from wordle_rl.policy.engine import Engine
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.prefix_cache import CachedEngine, CachedModel
from wordle_rl.policy.token_outputs import LARGEST, RowIndex
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers

T = TypeVar("T")


class Policy(ABC):
    """A language model that plays, scores and learns."""

    lm: Any  # the backend's LanguageModel
    make_cache: Callable[[Any], CachedModel]  # gives a model an empty cache of rows
    served: Callable[[], Any] | None = None  # gives the engine to play with, None for an own one
    reference_model: Policy | None = None  # which never changes; None: the start is the reference
    version = 0  # raised whenever the weights may change

    def __init__(
        self,
        tokenizer: HFTokenizer,
        *,
        temperature: float,
        optim: Optim,
        precision: Precision = "fp32",
        micro_batch_tokens: int = 16_384,
        max_context: int = 1024,
    ) -> None:
        """micro_batch_tokens: of a forward and backward pass. max_context: of an engine."""
        self.tokenizer = tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE  # replaced when more processes start
        self.computing = Computing(precision=precision)  # replaced by what the backend chose
        self.optim = optim
        self.micro_batch_tokens = micro_batch_tokens  # halved when memory runs out
        self._temperature, self._max_context = temperature, max_context
        self._start: Any = None  # the weights that keep_reference() kept
        self._halved = 0  # times since the last update
        self._first_half: Any = None  # gradient of an update's first half, from where it ends
        # Whether fp16 could not hold the gradient and will have a smaller scale the next time.
        self._scale_fell = False

    def engine(self) -> Engine:
        """The engine that `served` gives, or a fresh one of its own on the current weights."""
        return self.served() if self.served else self._build_engine()

    def _build_engine(self) -> CachedEngine:
        rows, stops, most = self.make_cache(self.lm), self.tokenizer.stop_ids, self._max_context
        return CachedEngine(rows, stop_ids=stops, max_context=most, timers=self.timers)

    def rehearsal(self) -> Policy | None:
        """A policy that computes as this one and takes no step, to time a run with.

        None where a part of a step does not tell how long the whole one takes.
        """
        return None

    def check_predictions(self) -> None:
        """Raise NotFinite if what follows a stop token overflows, though the weights do not."""
        self._build_engine().next_logprobs([sorted(self.tokenizer.stop_ids)[:1]])

    @property
    @abstractmethod
    def device_bytes(self) -> int: ...  # memory in use on the accelerator, 0 on the CPU

    @property
    @abstractmethod
    def num_parameters(self) -> tuple[int, int]: ...  # trainable and all

    @abstractmethod
    def keep_reference(self) -> None: ...  # makes the current weights the reference

    @abstractmethod
    def use_reference(self) -> AbstractContextManager[None]:
        """A block in which the weights that keep_reference() kept compute."""

    def set_reference(self, other: Policy, name: str) -> None:
        """Make another model the reference. Raises ConfigError if its tokens are others."""
        own, theirs = (set(one.tokenizer.inner.get_vocab().items()) for one in (self, other))
        if own != theirs:
            raise ConfigError(
                f"algorithm.reference={name} has another tokenizer than the model, with "
                f"{len(theirs - own):,} other tokens or ids: choose a model of the same family"
            )
        self.reference_model = other

    @abstractmethod
    def add_value_head(self) -> None: ...  # linear, on the trunk's hidden states; it starts at 0

    @abstractmethod
    def set_learning_rate(self, lr: float) -> None: ...

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write model and optimiser into an empty folder. Raises NotFinite for broken weights."""

    @abstractmethod
    def load(self, folder: Path) -> None: ...  # what save() wrote

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the model or adapter and its tokenizer in the format of their library."""

    @abstractmethod
    def _add_gradient(self, batch: Batch, rows: RowIndex, algorithm: Algorithm) -> dict[str, float]:
        """Accumulate the gradient of some rows. Returns their part of the metrics."""

    @abstractmethod
    def _drop_gradients(self) -> None: ...

    @abstractmethod
    def _copy_gradients(self) -> Any:
        """The gradients so far, which later ones do not change."""

    @abstractmethod
    def _multiply_gradients(self, first: Any) -> tuple[float, float, float]:
        """Inner products of gradients: all with all, all with the first, the first with itself.

        first: what _copy_gradients() gave, in this process alone.
        """

    @abstractmethod
    def _clip_gradients(self) -> float:
        """Scale the gradients to at most optim.clip_grad_norm. Returns their norm before."""

    @abstractmethod
    def _take_step(self) -> None:
        """Change the weights by one step of the optimisers."""

    def _share_gradients(self) -> None:
        """Replace the gradients by their sums over all processes, on a backend that has several."""
        raise NotImplementedError

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """Log-probabilities [N, T] of the trained tokens as the trainer sees them, else 0."""
        if not reference:
            with self.timers("score"):
                return self._read_all(batch)
        with self.timers("reference"):
            if self.reference_model is not None:
                return self.reference_model.score(batch)
            if self._start is None:
                raise RuntimeError("keep_reference() was not called before a reference score")
            with self.use_reference():
                return self._read_all(batch)

    def values(self, batch: Batch) -> FloatArray:
        """What the value head says [N, T] before each trained token is drawn, else 0."""
        with self.timers("values"):
            return self._read_all(batch, values=True)

    def _read_all(self, batch: Batch, *, values: bool = False) -> FloatArray:
        """What the model says of each token [N, T]: values, or log-probabilities."""
        out = np.zeros(batch.ids.shape, np.float32)

        def read(rows: RowIndex) -> None:
            with self.lm.without_gradients():
                outputs = self.lm.forward(batch, rows, self._temperature, Needs(values=values))
                array = self.lm.to_numpy(outputs.values if values else outputs.logprobs)
            out[rows, : array.shape[1]] = array

        self.run_micro_batches(batch, read)
        return out

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, in micro-batches.

        Returns metrics. `update/skipped` is 1 when a loss or gradient was not finite and the
        weights stayed as they were. `update/halved` counts how often memory ran out since the last
        update. Raises DoesNotFit. With fp16 it begins again until no gradient is too large.
        """
        self.version += 1
        self._first_half = None
        add = self._add_gradient if batch.halves is None else self._add_gradient_of_halves
        learn = partial(add, batch, algorithm=algorithm)
        totals = {"loss": 0.0, **dict.fromkeys(LARGEST, 0.0)}
        for part in self.run_micro_batches(batch, learn):
            _merge(totals, part)
        totals |= {"tokens": float(batch.drawn.sum()), "halved": float(self._halved)}
        self._halved = 0
        if batch.halves is not None and self._first_half is None:  # no row of the second half
            self._first_half = self._copy_gradients()
        if self.processes.size > 1:
            with self.timers("processes"):
                first, *others = self.processes.gather(totals)
                totals = dict(first)
                for other in others:
                    _merge(totals, other)
                self._share_gradients()
        agreement = {} if batch.halves is None else {"update/agreement": self._agreement()}
        with self.timers("optimizer"):
            norm = self._clip_gradients()
            skipped = not (np.isfinite(norm) and np.isfinite(totals["loss"]))
            if not skipped:
                self._take_step()
            self._drop_gradients()
        if skipped and self._scale_fell and np.isfinite(totals["loss"]):
            return self.update(batch, algorithm)
        outcome = {"grad_norm": norm, "update/skipped": float(skipped)}
        return _name_metrics(totals) | agreement | outcome

    def _add_gradient_of_halves(
        self, batch: Batch, rows: RowIndex, algorithm: Algorithm
    ) -> dict[str, float]:
        """As _add_gradient, and keep the first half's before the first row of the second."""
        assert batch.halves is not None
        if batch.halves[rows[0]] and self._first_half is None:
            self._first_half = self._copy_gradients()
        return self._add_gradient(batch, rows, algorithm)

    def _agreement(self) -> float:
        """Cosine of the gradients of an update's two halves, NaN where one of them is 0."""
        whole, both, one = self._multiply_gradients(self._first_half)
        other = whole - 2 * both + one
        product = max(one, 0.0) * max(other, 0.0)
        return (both - one) / math.sqrt(product) if product > 0.0 else math.nan

    def run_micro_batches(self, batch: Batch, work: Callable[[RowIndex], T]) -> list[T]:
        """Do the work on the rows of each micro-batch that has a trained token.

        When one of them does not fit into memory, the limit becomes half its size for the rest of
        the run, and all work begins again. Raises DoesNotFit when it cannot be split.
        """
        while True:
            done, failed = self._try(batch, work)
            if failed is None:
                return done
            width = int(batch.lengths[failed].max())
            if len(failed) == 1 or (batch.units is not None and len(set(batch.units[failed])) == 1):
                raise DoesNotFit(sequences=len(failed), tokens=width)
            self.micro_batch_tokens = min(self.micro_batch_tokens, len(failed) * width) // 2
            self._halved += 1
            print(
                f"out of memory with {len(failed)} x {width} tokens: from now on a micro-batch has "
                f"at most {self.micro_batch_tokens}, as with "
                f"backend.micro_batch_tokens={self.micro_batch_tokens}",
                flush=True,
            )

    def _try(self, batch: Batch, work: Callable[[RowIndex], T]) -> tuple[list[T], RowIndex | None]:
        """Do all the work. Returns the rows that did not fit into memory, too, if there are any."""
        done = []
        split = split_distinct if self.lm.computes_once else split_padded
        for rows in split_halves(batch, partial(split, max_tokens=self.micro_batch_tokens)):
            try:
                if batch.trained[rows].any():
                    done.append(work(rows))
            except (RuntimeError, MemoryError) as error:
                self._drop_gradients()  # a failed backward pass may have left a part of it
                self._first_half = None
                if not ran_out_of_memory(error):
                    raise
                return done, rows  # the error goes, and with it the tensors that its frames hold
        return done, None


def _merge(totals: dict[str, float], part: Mapping[str, float]) -> None:
    """Add the metrics of a micro-batch or process."""
    for name, value in part.items():
        had = totals.get(name, 0.0)
        totals[name] = max(had, value) if name in LARGEST else had + value


def _name_metrics(totals: Mapping[str, float]) -> dict[str, float]:
    """The metrics of an update by name: sums become means over the drawn tokens."""
    rest = dict(totals)
    loss, halved, tokens = (rest.pop(name) for name in ("loss", "halved", "tokens"))
    means = {
        f"policy/{name}": value if name in LARGEST else value / max(tokens, 1.0)
        for name, value in rest.items()
    }
    return {**means, "loss": loss, "update/halved": halved}
