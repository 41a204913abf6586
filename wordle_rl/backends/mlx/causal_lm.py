"""An mlx-lm model, split into the parts that engine and trainer call.

The trunk computes hidden states. The head is applied only where a token is drawn or trained. Logits
are float32, whatever the precision of the weights. Every call passes the trained weights in, so a
reference is just another set of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from wordle_rl.backends.mlx.cache import LayerCache, check_caches
from wordle_rl.backends.mlx.save import Weights
from wordle_rl.backends.policy import Wanted
from wordle_rl.policy.batch import LOGITS_BYTES
from wordle_rl.policy.grammar import LOW, Options

_BYTES = 4  # of a float32 logit


class ValueHead(nn.Module):
    """A linear function in float32 that starts at 0 everywhere."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = mx.zeros((hidden_size,))
        self.bias = mx.zeros(())

    def __call__(self, hidden: mx.array) -> mx.array:
        """Values [...] of hidden states [..., H]."""
        return hidden.astype(mx.float32) @ self.weight + self.bias


class MlxLM:
    """Trunk and head of a model."""

    def __init__(self, model: Any) -> None:
        """Raises ValueError when the model cannot be split, or its rows cannot share a cache."""
        self.model = model
        inner = getattr(model, "language_model", model)
        self._trunk: Any = inner.model
        self._head: Any = inner.get("lm_head")  # None when it shares the embedding
        self._embedding: Any = self._trunk.embed_tokens
        self._held: Weights = dict(tree_flatten(model.trainable_parameters()))
        self.vocabulary = int(self._embedding.weight.shape[0])
        self._check()

    @contextmanager
    def use_weights(self, weights: Weights) -> Iterator[None]:
        """Compute with these weights in the block, and with the model's own after it."""
        held = self._held
        # Compares arrays, because MLX puts its tracers into the same dict.
        if all(weights.get(name, array) is array for name, array in held.items()):
            yield
            return
        self.set_weights(weights)
        try:
            yield
        finally:
            self.set_weights(held)

    def set_weights(self, weights: Weights) -> None:
        """Make these the model's own weights. It keeps its other weights."""
        self.model.update(tree_unflatten(list(weights.items())))
        self._held = {**self._held, **weights}

    def compute_logits(self, hidden: mx.array, options: Options | None = None) -> mx.array:
        """float32 logits [..., V] of hidden states [..., H].

        options: of n hidden states [n, H]; the logits are [n, U] then.
        """
        head = self._embedding.as_linear if self._head is None else self._head
        logits = head(hidden).astype(mx.float32)
        if options is None:
            return logits
        tokens, closed = mx.array(options.tokens), mx.array(options.closed)  # pyright: ignore
        return mx.where(closed, LOW, logits[:, tokens])

    def compute_hidden(self, ids: mx.array, caches: Sequence[LayerCache] | None = None) -> mx.array:
        """Hidden states [N, T, H] of whole sequences, padded on the right.

        caches: of each layer, with the tokens before these ones.
        """
        return self._trunk(ids, caches)

    def add_value_head(self) -> dict[str, mx.array]:
        """Give the model a value head. Returns the head's weights, by their names in the model."""
        head = ValueHead(self.compute_hidden(mx.array([[1]])).shape[-1])
        self.model.value_head = head
        return {f"value_head.{name}": weight for name, weight in head.items()}

    def read_places(
        self,
        ids: mx.array,
        places: mx.array,
        wanted: Wanted,
        temperature: float,
        *,
        entropy: bool = False,
        values: bool = False,
    ) -> dict[str, mx.array]:
        """`logprobs` [P], and perhaps `entropy` and `values`, of flat places [P] of ids [N, T].

        Place n T + t is token t of row n, and t must not be 0. The head runs only there.
        """
        hidden = self.compute_hidden(ids)
        hidden = hidden.reshape(-1, hidden.shape[-1])[places - 1]

        def read(hidden: mx.array, start: int) -> tuple[mx.array, ...]:
            part = wanted.part(start, len(hidden))
            place, columns, shares = map(mx.array, (part.place, part.columns, part.shares))
            logits = self.compute_logits(hidden, part.options) / temperature
            normalizer = mx.logsumexp(logits, axis=-1)
            chosen = mx.zeros(len(hidden)).at[place].add(logits[place, columns] * shares)
            if not entropy:
                return (chosen - normalizer,)
            expected = (mx.exp(logits - normalizer[:, None]) * logits).sum(-1)
            return chosen - normalizer, normalizer - expected

        count, most = len(places), max(LOGITS_BYTES // (_BYTES * self.vocabulary), 1)
        if count <= most:
            found = read(hidden, 0)
        else:
            # The backward pass computes the logits of each part again. With a large vocabulary,
            # keeping them would need more memory than the model.
            module = self._embedding if self._head is None else self._head
            parts = [
                recompute(module, partial(read, start=start))(hidden[start : start + most])
                for start in range(0, count, most)
            ]
            found = tuple(mx.concatenate(list(column)) for column in zip(*parts, strict=True))
        outputs = dict(zip(("logprobs", "entropy"), found, strict=False))
        return outputs | ({"values": self.model.value_head(hidden)} if values else {})

    def checkpoint_layers(self) -> None:
        """Recompute each layer in the backward pass instead of keeping its activations."""
        for layer in self.model.layers:
            kind = type(layer)
            if kind.__name__ != "Checkpointed":
                layer.__class__ = type(
                    "Checkpointed", (kind,), {"__call__": _checkpoint_call(kind.__call__)}
                )

    def _check(self) -> None:
        """Raise ValueError unless trunk and head together compute what the model computes."""
        ids = mx.array([[1, 2, 3]])
        try:
            whole = self.model(ids).astype(mx.float32)
            halves = self.compute_logits(self.compute_hidden(ids))
            same = bool(mx.allclose(whole, halves, rtol=1e-2, atol=1e-2).item())
        except (TypeError, AttributeError, ValueError):
            same = False
        if not same:
            raise ValueError(
                "backend=mlx: this kind of model computes its logits in an unknown way; "
                "Qwen2 and Gemma 3 work"
            )
        check_caches(self.model)


def count_parameters(model: Any) -> int:
    """The parameters of a model. Quantised weights count as the weights they represent."""
    count = 0
    for _, module in model.named_modules():
        bits = getattr(module, "bits", None)
        for name, value in module.items():
            if isinstance(value, mx.array) and not name.startswith("_"):
                if bits and name in ("scales", "biases"):
                    continue
                count += value.size * (32 // bits if bits and name == "weight" else 1)
    return count


def recompute(module: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that uses a module, and that the backward pass computes again.

    The module's trained weights become arguments, because mx.checkpoint passes gradients only to
    arguments.
    """

    def inner(weights: Any, *arguments: Any) -> Any:
        before = module.trainable_parameters()
        module.update(weights)
        try:
            return function(*arguments)
        finally:
            module.update(before)

    again = mx.checkpoint(inner)
    return lambda *arguments: again(module.trainable_parameters(), *arguments)


def _checkpoint_call(call: Any) -> Any:
    def checkpointed(layer: Any, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        if cache is not None:
            return call(layer, x, mask, cache)
        return recompute(layer, lambda x: call(layer, x, mask, None))(x)

    return checkpointed
