"""An mlx-lm model, split into the parts that engine and trainer call.

The trunk computes hidden states. The head is applied only where a token is drawn or trained. Logits
are float32, whatever the precision of the weights. A reference is just another set of weights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_unflatten
from numpy.typing import NDArray

from wordle_rl.backends.mlx.save import Weights
from wordle_rl.policy.grammar import LOW, Options
from wordle_rl.policy.token_outputs import LanguageModel


class ValueHead(nn.Module):
    """A linear function in float32 that starts at 0 everywhere."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = mx.zeros((hidden_size,))
        self.bias = mx.zeros(())

    def __call__(self, hidden: mx.array) -> mx.array:
        """Values [...] of hidden states [..., H]."""
        return hidden.astype(mx.float32) @ self.weight + self.bias


class MlxLM(LanguageModel):
    """Trunk and head of a model of a family that load.py knows."""

    xp = mx

    def __init__(self, model: Any) -> None:
        self.model = model
        inner = getattr(model, "language_model", model)
        self._trunk: Any = inner.model
        table, head = self._trunk.embed_tokens, inner.get("lm_head")
        self._head: Any = table if head is None else head  # the module that has its weights
        self._is_tied = head is None
        self.vocabulary = int(table.weight.shape[0])

    @contextmanager
    def use_weights(self, weights: Weights) -> Iterator[None]:
        """Compute with these weights in the block, and with the model's own after it."""
        backup = self.model.trainable_parameters()
        self.set_weights(weights)
        try:
            yield
        finally:
            self.model.update(backup)

    def set_weights(self, weights: Weights) -> None:
        """Make these the model's own weights. It keeps its other weights."""
        self.model.update(tree_unflatten(list(weights.items())))

    def compute_logits(self, hidden: mx.array, options: Options | None = None) -> mx.array:
        head = self._head
        if options is not None:  # each of its arrays, quantised or not, has a row for each token
            head, tokens = copy(head), mx.array(options.tokens)  # pyright: ignore
            head.update({name: rows[tokens] for name, rows in head.items()})
        logits = (head.as_linear if self._is_tied else head)(hidden).astype(mx.float32)
        return logits if options is None else mx.where(mx.array(options.closed), LOW, logits)  # pyright: ignore

    def compute_hidden(self, ids: mx.array, caches: Sequence[Any] | None = None) -> mx.array:
        """Hidden states [N, T, H] of whole sequences, padded on the right.

        caches: of each layer, with the tokens before these ones.
        """
        return self._trunk(ids, caches)

    def add_value_head(self) -> dict[str, mx.array]:
        """Give the model a value head. Returns the head's weights, by their names in the model."""
        head = ValueHead(self.compute_hidden(mx.array([[1]])).shape[-1])
        self.model.value_head = self.value_head = head
        return {f"value_head.{name}": weight for name, weight in head.items()}

    def to_array(self, values: NDArray) -> mx.array:
        return mx.array(values)

    def to_numpy(self, array: mx.array) -> NDArray[np.float32]:
        return np.array(array)

    def read_states(self, ids: NDArray[np.int64], trained: NDArray[np.bool_]) -> mx.array:
        hidden = self.compute_hidden(mx.array(ids.astype(np.int32)))
        positions = mx.array(np.flatnonzero(trained))
        return hidden.reshape(-1, hidden.shape[-1])[positions - 1]

    def add_at(self, size: int, place: mx.array, values: mx.array) -> mx.array:
        return mx.zeros(size).at[place].add(values)

    def recompute_head(self, function: Callable[..., Any], states: mx.array, start: int) -> Any:
        return recompute(self._head, partial(function, start=start))(states)

    def checkpoint_layers(self) -> None:
        """Recompute each layer in the backward pass instead of keeping its activations."""
        for layer in self.model.layers:
            layer.__class__ = _checkpoint_class(type(layer))


def recompute(module: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that uses a module, and that the backward pass computes again.

    The module's trained weights become arguments, because mx.checkpoint passes gradients only to
    arguments.
    """

    def inner(weights: Any, *arguments: Any) -> Any:
        backup = module.trainable_parameters()
        module.update(weights)
        try:
            return function(*arguments)
        finally:
            module.update(backup)

    rerun = mx.checkpoint(inner)
    return lambda *arguments: rerun(module.trainable_parameters(), *arguments)


def _checkpoint_class(kind: Any) -> type:
    def call(layer: Any, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        if cache is not None:
            return kind.__call__(layer, x, mask, cache)
        return recompute(layer, lambda x: kind.__call__(layer, x, mask, None))(x)

    return type("Checkpointed", (kind,), {"__call__": call})
