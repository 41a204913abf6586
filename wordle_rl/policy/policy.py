"""A language model that plays, scores and learns: micro-batches, the loss, metrics, failed updates.

Each backend adds how a model computes, and what its gradients and weights are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wordle_rl.algorithms.base import Algorithm, LossInputs, constant
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
from wordle_rl.policy.token_outputs import RowIndex, TokenOutputs
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import ALONE, Processes
from wordle_rl.runs.timing import Timers

T = TypeVar("T")
# Metrics of an update that are the largest value over tokens, micro-batches, processes and updates.
# All others are means.
LARGEST = ("ratio_gap", "largest_sampler_gap")
FORCED_TOO = ("semantic",)  # metrics whose sum also has the tokens that a grammar forced


class Policy(ABC):
    """A language model that plays, scores and learns."""

    lm: Any  # the backend's LanguageModel
    make_cache: Callable[[Any], CachedModel]  # gives a model an empty cache of rows
    served: Callable[[], Any] | None = None  # gives the engine to play with, None for an own one
    reference: Policy | None = None  # another model, which never changes; None for the start
    version = 0  # raised whenever the weights may change

    def __init__(
        self,
        tokenizer: HFTokenizer,
        *,
        temperature: float,
        optim: Optim,
        precision: Precision,
        micro_batch_tokens: int,
        max_context: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.timers = Timers()
        self.processes: Processes = ALONE  # replaced when more processes start
        self.computing = Computing(precision=precision)  # replaced by what the backend chose
        self.optim = optim
        self.micro_batch_tokens = micro_batch_tokens  # halved when memory runs out
        self._temperature, self._max_context = temperature, max_context
        self._reference: Any = None  # what keep_reference() kept
        self._halved = 0  # times since the last update
        self._first_half: Any = None  # gradient of an update's first half, from where it ends

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

    def set_reference(self, other: Policy, name: str) -> None:
        """Make another model the reference. Raises ConfigError if its tokens are others."""
        own, theirs = (set(one.tokenizer.inner.get_vocab().items()) for one in (self, other))
        if own != theirs:
            raise ConfigError(
                f"algorithm.reference={name} has another tokenizer than the model, with "
                f"{len(theirs - own):,} other tokens or ids: choose a model of the same family"
            )
        self.reference = other

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
    def _forward(
        self, batch: Batch, rows: RowIndex, *, reference: bool = False, values: bool = False
    ) -> FloatArray:
        """The model's outputs for some rows [R, T]: values, or the tokens' log-probabilities."""

    @abstractmethod
    def _add_gradient(self, batch: Batch, rows: RowIndex, algorithm: Algorithm) -> dict[str, float]:
        """Accumulate the gradient of some rows. Returns what _compute_loss() says of them."""

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
        other = self.reference if reference else None
        if reference and other is None and self._reference is None:
            raise RuntimeError("keep_reference() was not called before a reference score")
        with self.timers("reference" if reference else "score"):
            return other.score(batch) if other else self._read_all(batch, reference=reference)

    def values(self, batch: Batch) -> FloatArray:
        """What the value head says [N, T] before each trained token is drawn, else 0."""
        with self.timers("values"):
            return self._read_all(batch, values=True)

    def _read_all(self, batch: Batch, **what: bool) -> FloatArray:
        out = np.zeros(batch.ids.shape, np.float32)

        def read(rows: RowIndex) -> None:
            found = self._forward(batch, rows, **what)
            out[rows, : found.shape[1]] = found

        self.run_micro_batches(batch, read)
        return out

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted loss of a batch, in micro-batches.

        Returns metrics. `update/skipped` is 1 when a loss or gradient was not finite and the
        weights stayed as they were. `update/halved` counts how often memory ran out since the last
        update. Raises DoesNotFit.
        """
        self.version += 1
        learn = partial(self._learn, batch, algorithm=algorithm)
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
        outcome = {"grad_norm": norm, "update/skipped": float(skipped)}
        return _name_metrics(totals) | agreement | outcome

    def _learn(self, batch: Batch, rows: RowIndex, algorithm: Algorithm) -> dict[str, float]:
        """Accumulate the gradient of some rows, and keep what the first half of them left."""
        if batch.halves is not None and batch.halves[rows[0]] and self._first_half is None:
            self._first_half = self._copy_gradients()
        return self._add_gradient(batch, rows, algorithm)

    def _agreement(self) -> float:
        """Cosine of the gradients of an update's two halves, NaN where one of them is 0."""
        whole, both, one = self._multiply_gradients(self._first_half)
        other = whole - 2 * both + one
        product = max(one, 0.0) * max(other, 0.0)
        return (both - one) / math.sqrt(product) if product > 0.0 else math.nan

    def _compute_loss(
        self, batch: Batch, rows: RowIndex, algorithm: Algorithm
    ) -> tuple[Any, dict[str, Any]]:
        """The loss of some rows, and their part of an update's metrics.

        A metric is a sum over the drawn tokens, or their largest value if it is in LARGEST.
        """
        outputs: TokenOutputs = self.lm.forward(
            batch,
            rows,
            temperature=self._temperature,
            entropy=algorithm.needs_entropy,
            values=algorithm.needs_values,
            allowed=algorithm.needs_allowed,
        )
        xp, inputs = self.lm.xp, self._loss_inputs(batch, rows, outputs)
        per_token, metrics = algorithm.loss(xp, inputs)
        logprobs = constant(xp, outputs.logprobs)
        gap = xp.abs(logprobs - inputs.sampler_logprobs)
        metrics |= {"sampler_gap": gap, "surprise": -logprobs}
        every = self.lm.to_array(batch.trained[rows, : logprobs.shape[1]])
        counted = {name: every if name in FORCED_TOO else inputs.trained for name in metrics}
        sums = {
            name: xp.sum(xp.where(counted[name], constant(xp, values), 0.0))
            for name, values in metrics.items()
        }
        loss = xp.sum(per_token * self._part(batch.weights, rows, outputs))
        return loss, {
            **sums,
            "loss": constant(xp, loss),
            "ratio_gap": xp.max(xp.abs(xp.exp(logprobs - inputs.old_logprobs) - 1)),
            "largest_sampler_gap": xp.max(gap),
        }

    def _loss_inputs(self, batch: Batch, rows: RowIndex, outputs: TokenOutputs) -> LossInputs:
        """What a loss reads of some rows."""
        logprobs, to_array = constant(self.lm.xp, outputs.logprobs), self.lm.to_array
        part = partial(self._part, rows=rows, outputs=outputs)
        return LossInputs(
            logprobs=outputs.logprobs,
            entropy=outputs.entropy,
            values=outputs.values,
            allowed=outputs.allowed,
            old_logprobs=logprobs if batch.old_logprobs is None else part(batch.old_logprobs),
            sampler_logprobs=part(batch.sampler_logprobs),
            advantages=part(batch.advantages),
            trained=to_array(batch.drawn[rows, : logprobs.shape[1]]),
            units=to_array(rows if batch.units is None else batch.units[rows]),
            ref_logprobs=part(batch.ref_logprobs),
            old_values=part(batch.old_values),
            targets=part(batch.targets),
            target_scale=batch.target_scale,
        )

    def _part(self, values: FloatArray | None, rows: RowIndex, outputs: TokenOutputs) -> Any:
        """Some rows of an array [N, T] of a batch, as the backend's own."""
        if values is None:
            return None
        width = outputs.logprobs.shape[1]
        return self.lm.to_array(values[rows, :width].astype(np.float32, copy=False))

    def run_micro_batches(self, batch: Batch, work: Callable[[RowIndex], T]) -> list[T]:
        """Do the work on the rows of each micro-batch that has a trained token.

        When one of them does not fit into memory, the limit becomes half its size for the rest of
        the run, and all work begins again. Raises DoesNotFit when it cannot be split.
        """
        while True:
            # A failed backward pass may have left a part of its gradient.
            self._drop_gradients()
            self._first_half = None
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
