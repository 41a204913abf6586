"""What the training step needs of a model; each backend implements it."""

from pathlib import Path
from typing import Protocol

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.policy.batch import Batch, FloatArray
from wordle_rl.policy.computing import Computing
from wordle_rl.policy.engine import Engine
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.runs.processes import Processes
from wordle_rl.runs.timing import Timers

# Metrics of an update that are the largest value over tokens, micro-batches, processes and updates.
# All others are means.
LARGEST = ("ratio_gap", "largest_sampler_gap")


class Policy(Protocol):
    """A language model that plays, scores and learns."""

    tokenizer: HFTokenizer
    timers: Timers
    processes: Processes  # that train copies of this policy together
    computing: Computing  # precision and CPU threads

    @property
    def device_bytes(self) -> int: ...  # memory in use on the accelerator, 0 on the CPU

    @property
    def num_parameters(self) -> tuple[int, int]: ...  # trainable and all

    def engine(self) -> Engine: ...  # a fresh one on the current weights

    def score(self, batch: Batch, *, reference: bool = False) -> FloatArray:
        """float32 [N, T] log-probabilities of the trained tokens, 0 elsewhere."""
        ...

    def values(self, batch: Batch) -> FloatArray:
        """float32 [N, T] of the value head before each trained token is drawn, 0 elsewhere."""
        ...

    def update(self, batch: Batch, algorithm: Algorithm) -> dict[str, float]:
        """One optimiser step on the weighted sum of the algorithm's loss over the batch.

        With several processes, loss and metrics cover the batches of all of them.
        """
        ...

    def keep_reference(self) -> None: ...  # makes the current weights the reference

    def add_value_head(self) -> None:
        """Add a linear head that learns values from the trunk's hidden states. It starts at 0.

        Raises ValueError when the backend has no value head.
        """
        ...

    def set_learning_rate(self, lr: float) -> None: ...

    def save(self, folder: Path) -> None:
        """Write model and optimiser into an empty folder. Raises NotFinite for broken weights."""
        ...

    def load(self, folder: Path) -> None: ...  # what save() wrote

    def export(self, folder: Path) -> None:
        """Write the model or adapter and its tokenizer in the format of their library."""
        ...
