"""An mlx-lm model, split into the parts that engine and trainer call.

The trunk computes hidden states. The head is applied only where a token is drawn or trained. Logits
are float32, whatever the precision of the weights. Every call passes the trained weights in, so a
reference is just another set of weights.
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

from wordle_rl.backends.mlx.cache import LayerCache, check_caches
from wordle_rl.backends.mlx.save import Weights
from wordle_rl.policy.grammar import LOW

_LOGITS = 2**26  # most logits computed at once: 256 MB in float32


@dataclass(frozen=True, kw_only=True)
class TokenOutputs:
    """What one forward pass says of each trained token. All arrays are [M]."""

    logprobs: mx.array  # natural log
    entropy: mx.array | None  # of the distribution that the token was drawn from
    values: mx.array | None  # before it was drawn


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

    def compute_logits(self, hidden: mx.array) -> mx.array:
        """float32 logits [..., V] of hidden states [..., H]."""
        head = self._embedding.as_linear if self._head is None else self._head
        return head(hidden).astype(mx.float32)

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

    def compute_token_outputs(
        self,
        arrays: Mapping[str, mx.array],
        temperature: float,
        *,
        entropy: bool = False,
        values: bool = False,
    ) -> TokenOutputs:
        """Scores the tokens at flat places [M] of ids [N, T]. The head runs only there.

        Place n T + t is token t of row n, and t must not be 0. arrays: `ids` and `places`; to
        score other tokens than those in ids, also `choices` [M, K] and their `shares` [M, K].
        Under a grammar, `tokens` [U] and `closed` [M, U] are its Options, and the choices are
        places among these tokens.
        """
        ids, places = arrays["ids"], arrays["places"]
        hidden = self.compute_hidden(ids)
        hidden = hidden.reshape(-1, hidden.shape[-1])[places - 1]
        choices = arrays.get("choices", ids.reshape(-1)[places][:, None])
        shares, tokens, closed = (arrays.get(name) for name in ("shares", "tokens", "closed"))

        def compute_part(hidden: mx.array, start: int, end: int) -> tuple[mx.array, ...]:
            part = None if shares is None else shares[start:end]
            logits = self.compute_logits(hidden)
            if tokens is not None and closed is not None:
                logits = close_logits(logits, tokens, closed[start:end])
            return _score_choices(logits / temperature, choices[start:end], part, entropy)

        count, size = len(places), max(_LOGITS // self.vocabulary, 1)
        if count <= size:
            found = compute_part(hidden, 0, count)
        else:
            # The backward pass computes the logits of each part again. With a large vocabulary,
            # keeping them would need more memory than the model.
            module = self._embedding if self._head is None else self._head
            starts = range(0, count, size)
            parts = [
                recompute(module, partial(compute_part, start=i, end=i + size))(
                    hidden[i : i + size]
                )
                for i in starts
            ]
            found = tuple(mx.concatenate(list(column)) for column in zip(*parts, strict=True))
        return TokenOutputs(
            logprobs=found[0],
            entropy=found[1] if entropy else None,
            values=self.model.value_head(hidden) if values else None,
        )

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


def close_logits(logits: mx.array, tokens: mx.array, closed: mx.array) -> mx.array:
    """The logits [n, U] of a grammar's Options, of logits [n, V]."""
    return mx.where(closed, LOW, logits[:, tokens])


def _score_choices(
    logits: mx.array, choices: mx.array, shares: mx.array | None, entropy: bool
) -> tuple[mx.array, ...]:
    """Log-probabilities [M], averaged by shares if given, and entropies [M] if wanted."""
    normalizer = mx.logsumexp(logits, axis=-1)
    chosen = mx.take_along_axis(logits, choices, axis=1)
    chosen = chosen[:, 0] if shares is None else (chosen * shares).sum(-1)
    logprobs = chosen - normalizer
    if not entropy:
        return (logprobs,)
    return logprobs, normalizer - (mx.exp(logits - normalizer[:, None]) * logits).sum(-1)


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
