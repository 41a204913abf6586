"""An mlx-lm model, split into what the engine and the trainer call.

The trunk gives hidden states; the head is applied only where a token is drawn or trained. Logits
are float32 whatever the precision of the weights. Trained weights are passed in by every call, so
that a reference is just another set of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from wordle_rl.backends.mlx_cache import KVShape, LayerView, Probe, Ring, rings

Weights = Mapping[str, mx.array]
_LOGITS = 2**26  # numbers in the logits of one piece: 256 MB in float32


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
        if all(weights[name] is array for name, array in held.items()):
            yield
            return
        self.hold(weights)
        try:
            yield
        finally:
            self.hold(held)

    def hold(self, weights: Weights) -> None:
        """Let these be the model's own weights; all that are ever passed in, by name."""
        self.model.update(tree_unflatten(list(weights.items())))
        self._held = dict(weights)

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

    def logprobs(self, ids: mx.array, places: mx.array, temperature: float) -> mx.array:
        """Natural log-probability [M] of the tokens at flat places [M] of ids [N, T].

        Place n T + t is token t of row n, and t must not be 0. The head runs there alone.
        """
        hidden = self.hidden(ids)
        hidden = hidden.reshape(-1, hidden.shape[-1])[places - 1]
        targets = ids.reshape(-1)[places]
        size = max(_LOGITS // self.vocabulary, 1)
        if len(targets) <= size:
            return self._chosen(hidden, targets, temperature)
        # Pieces whose logits are computed again in the backward pass: a large vocabulary would
        # otherwise need more memory than the model.
        module = self._embedding if self._head is None else self._head

        def piece(start: int) -> mx.array:
            part = targets[start : start + size]
            chosen = recomputed(module, lambda hidden: self._chosen(hidden, part, temperature))
            return chosen(hidden[start : start + size])

        return mx.concatenate([piece(start) for start in range(0, len(targets), size)])

    def _chosen(self, hidden: mx.array, targets: mx.array, temperature: float) -> mx.array:
        logits = self.logits(hidden) / temperature
        chosen = mx.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return chosen - mx.logsumexp(logits, axis=-1)

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
