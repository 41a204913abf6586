"""An mlx-lm model, split into what the engine and the trainer call.

The trunk gives hidden states; the head is applied only where a token is drawn or trained. Logits
are float32 whatever the precision of the weights. Trained weights are passed in by every call, so
that a reference is just another set of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from wordle_rl.backends.mlx.cache import KVShape, LayerView, Probe, Ring, rings

Weights = Mapping[str, mx.array]
_LOGITS = 2**26  # numbers in the logits of one piece: 256 MB in float32


@dataclass(frozen=True, kw_only=True)
class TokenOutputs:
    """What one pass says of each trained token; all are [M]."""

    logprobs: mx.array  # natural log
    entropy: mx.array | None  # of the distribution that the token was drawn from
    values: mx.array | None  # before it was drawn


class ValueHead(nn.Module):
    """A linear function of hidden states in float32, 0 everywhere at the start."""

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
        """Raises ValueError for a model that cannot be split, or whose cache rows cannot share."""
        self.model = model
        inner = getattr(model, "language_model", model)
        self._trunk: Any = inner.model
        self._head: Any = inner.get("lm_head")  # None when it shares the embedding
        self._embedding: Any = self._trunk.embed_tokens
        self._held: Weights = dict(tree_flatten(model.trainable_parameters()))
        self.vocabulary = int(self._embedding.weight.shape[0])
        self._check()

    def rings(self, longest: int) -> list[Ring]:
        return rings(self.model, longest)

    @contextmanager
    def using(self, weights: Weights) -> Iterator[None]:
        """Compute with these weights in the block; the model has its own ones again after it."""
        held = self._held
        # MLX puts its tracers into the same dict, so only the arrays tell.
        if all(weights.get(name, array) is array for name, array in held.items()):
            yield
            return
        self.hold(weights)
        try:
            yield
        finally:
            self.hold(held)

    def hold(self, weights: Weights) -> None:
        """Let these be the model's own weights, beside those that are not among them."""
        self.model.update(tree_unflatten(list(weights.items())))
        self._held = {**self._held, **weights}

    def kept(self, weights: Weights) -> list[KVShape]:
        """What each layer keeps of a token."""
        probes = [Probe() for _ in self.model.layers]
        with self.using(weights):
            self._trunk(mx.array([[1]]), probes)
        return [probe.shape for probe in probes]

    def logits(self, hidden: mx.array) -> mx.array:
        """float32 logits [..., V] of hidden states [..., H]."""
        head = self._embedding.as_linear if self._head is None else self._head
        return head(hidden).astype(mx.float32)

    def hidden(self, ids: mx.array) -> mx.array:
        """Hidden states [N, T, H] of sequences padded on the right, each seen from its start."""
        return self._trunk(ids)

    def cached_hidden(
        self,
        ids: mx.array,
        positions: mx.array,
        keys: Sequence[mx.array],
        values: Sequence[mx.array],
        rings: Sequence[Ring],
        ends: Sequence[int],
    ) -> tuple[mx.array, list[mx.array], list[mx.array]]:
        """Hidden states [N, T, H] of new tokens at given positions, and the new keys and values.

        keys, values: by layer [slots, heads, capacity, dim]; the rows lie in the first N slots.
        ends: by layer how many keys are in sight.
        """
        views = [
            LayerView(k, v, ring, positions, end)
            for k, v, ring, end in zip(keys, values, rings, ends, strict=True)
        ]
        hidden = self._trunk(ids, views)
        return hidden, [view.keys for view in views], [view.values for view in views]

    def add_value_head(self) -> dict[str, mx.array]:
        """Give the model a value head. Returns the head's weights, by their names in the model."""
        head = ValueHead(self.hidden(mx.array([[1]])).shape[-1])
        self.model.value_head = head
        return {f"value_head.{name}": weight for name, weight in head.items()}

    def outputs(
        self,
        arrays: Mapping[str, mx.array],
        temperature: float,
        *,
        entropy: bool = False,
        values: bool = False,
    ) -> TokenOutputs:
        """What is said of the tokens at flat places [M] of ids [N, T]; the head runs there alone.

        Place n T + t is token t of row n, and t must not be 0. arrays: `ids`, `places`, and, to
        score other tokens there than ids has, `choices` [M, K] with their `shares` [M, K].
        """
        ids, places = arrays["ids"], arrays["places"]
        hidden = self.hidden(ids)
        hidden = hidden.reshape(-1, hidden.shape[-1])[places - 1]
        choices = arrays.get("choices", ids.reshape(-1)[places][:, None])
        shares = arrays.get("shares")

        def piece(hidden: mx.array, start: int, end: int) -> tuple[mx.array, ...]:
            part = None if shares is None else shares[start:end]
            return self._of_tokens(hidden, choices[start:end], part, temperature, entropy)

        count, size = len(places), max(_LOGITS // self.vocabulary, 1)
        if count <= size:
            found = piece(hidden, 0, count)
        else:
            # Pieces whose logits are computed again in the backward pass: a large vocabulary would
            # otherwise need more memory than the model.
            module = self._embedding if self._head is None else self._head
            starts = range(0, count, size)
            parts = [
                recomputed(module, partial(piece, start=i, end=i + size))(hidden[i : i + size])
                for i in starts
            ]
            found = tuple(mx.concatenate(list(column)) for column in zip(*parts, strict=True))
        return TokenOutputs(
            logprobs=found[0],
            entropy=found[1] if entropy else None,
            values=self.model.value_head(hidden) if values else None,
        )

    def _of_tokens(
        self,
        hidden: mx.array,
        choices: mx.array,
        shares: mx.array | None,
        temperature: float,
        entropy: bool,
    ) -> tuple[mx.array, ...]:
        """Log-probabilities [M], their mean by shares, and the entropies [M] if asked for."""
        logits = self.logits(hidden) / temperature
        normalizer = mx.logsumexp(logits, axis=-1)
        chosen = mx.take_along_axis(logits, choices, axis=1)
        chosen = chosen[:, 0] if shares is None else (chosen * shares).sum(-1)
        logprobs = chosen - normalizer
        if not entropy:
            return (logprobs,)
        return logprobs, normalizer - (mx.exp(logits - normalizer[:, None]) * logits).sum(-1)

    def checkpoint_layers(self) -> None:
        """Compute each layer again in the backward pass instead of keeping what is inside it."""
        for layer in self.model.layers:
            kind = type(layer)
            if kind.__name__ != "Checkpointed":
                layer.__class__ = type("Checkpointed", (kind,), {"__call__": _again(kind.__call__)})

    def _check(self) -> None:
        """The two halves must make the whole model, with and without a cache."""
        ids = mx.array([[1, 2, 3]])
        try:
            whole = self.model(ids).astype(mx.float32)
            halves = self.logits(self.hidden(ids))
            same = bool(mx.allclose(whole, halves, rtol=1e-2, atol=1e-2).item())
        except (TypeError, AttributeError, ValueError):
            same = False
        if not same:
            raise ValueError(
                "backend=mlx: this kind of model computes its logits in a way that is not known "
                "here; Qwen2 and Gemma 3 are"
            )
        self.rings(8)


def recomputed(module: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that uses a module, computed again in the backward pass.

    What the module trains is handed in as arguments, or mx.checkpoint would cut its gradient off.
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


def _again(call: Any) -> Any:
    def checkpointed(layer: Any, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        if cache is not None:
            return call(layer, x, mask, cache)
        return recomputed(layer, lambda x: call(layer, x, mask, None))(x)

    return checkpointed
