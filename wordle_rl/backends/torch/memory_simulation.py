"""Runs rollouts and updates on tensors without data, and counts the bytes that they would hold.

The model is on torch's meta device, which knows shapes and types only. The code that computes is
the code of real runs, so the count follows every change of it. What kernels allocate inside
themselves is not seen. Fused attention, whose kernel depends on the device, is replaced by an
operation that keeps what the fused kernels keep.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from wordle_rl.backends.torch.cache import Place, SlotBuffers, SlotCache
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.sampling import draw_tokens
from wordle_rl.backends.torch.token_outputs import WantedTokens, read_states
from wordle_rl.policy.memory_plan import GameSize, Learning, Linear, Playing
from wordle_rl.policy.sampling import Sampling

_SAMPLING = Sampling(temperature=0.5)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operations in the block create.

    now: while the tensors exist. peak: the most at any time since the start or reset_peak().
    Views and tensors from before the block count as nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage(), 0)
        out = func(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._note(storage, storage.nbytes())
        return out

    def _note(self, storage: torch.UntypedStorage, size: int) -> None:
        """Count a storage that was not seen before, until it is freed."""
        key = id(storage)
        if key in self._seen:
            return

        def forget(_: object) -> None:
            self.now -= size
            del self._seen[key]

        self._seen[key] = weakref.ref(storage, forget)
        self.now += size
        self.peak = max(self.peak, self.now)

    def reset_peak(self) -> None:
        self.peak = self.now


class _KernelAttention(torch.autograd.Function):
    """Keeps and makes what a fused attention kernel does, without computing."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any
    ) -> torch.Tensor:
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        normalizer = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, mask, out, normalizer)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        query, key, value, *_ = ctx.saved_tensors
        return (*map(torch.empty_like, (query, key, value)), None)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Any:
    """In the place of torch's fused attention."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = attn_mask.to(query.dtype)  # the kernels add their mask
    return _KernelAttention.apply(query, key, value, attn_mask)


@contextmanager
def without_data() -> Iterator[None]:
    """Make new tensors on the meta device in the block, and let attention compute nothing."""
    functions: Any = nn.functional
    real = functions.scaled_dot_product_attention
    # A torch function mode would not see the layers that a backward pass computes again.
    functions.scaled_dot_product_attention = _attend
    try:
        with torch.device("meta"):
            yield
    finally:
        functions.scaled_dot_product_attention = real


def simulate_playing(lm: CausalLM, game: GameSize, games: int) -> Playing:
    """What rollouts of so many games at once hold. lm: on the meta device."""
    other = max(games // 2, 1) if games > 1 else 2
    counts = [_play_once(lm, game, games), _play_once(lm, game, other)]

    def fit(part: int) -> Linear:
        here, there = (count[part] for count in counts)
        each = (here - there) / (games - other)
        return Linear(fixed=here - each * games, each=each)

    return Playing(
        keys_values=fit(0), logits=fit(1), states=fit(2), opening=_feed_opening(lm, game.opening)
    )


@torch.no_grad()
def _feed_opening(lm: CausalLM, width: int) -> int:
    """The most bytes while the opening that all games share is fed to one row."""
    buffers = SlotBuffers(lm.layers)
    buffers.reserve(1, width)
    with without_data(), LiveBytes() as live:
        trunk = lm.choose_rollout_trunk()
        cache = SlotCache(buffers, 1, Place(torch.arange(width)[None], 0, width))
        ids, last = torch.zeros(1, width, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        trunk.compute_last_hidden(ids, last, cache)
        return live.peak


@torch.no_grad()
def _play_once(lm: CausalLM, game: GameSize, games: int) -> tuple[int, int, int]:
    """Bytes of keys and values, of logits, and of other states, when games are at their longest."""
    buffers = SlotBuffers(lm.layers)
    buffers.reserve(games, game.opening)
    while buffers.capacity < game.whole:  # as it grows token by token
        buffers.reserve(games, buffers.capacity + 1)
    with without_data(), LiveBytes() as live:
        trunk = lm.choose_rollout_trunk()
        joined = live.now
        ids = torch.zeros(games, game.feed, dtype=torch.long)
        places = torch.arange(game.feed).expand(games, -1)
        cache = SlotCache(buffers, games, Place(places, None, game.whole))
        last = torch.zeros(games, dtype=torch.long)
        hidden = trunk.compute_last_hidden(ids, last, cache)
        kept = sum(
            tensor.untyped_storage().nbytes()
            for layer in range(lm.layers)
            for tensor in buffers.get_layer(layer, hidden[:, None, None])
        )
        # Growing copies one layer at a time.
        states = max(live.peak - kept, joined + kept // lm.layers)
        live.reset_peak()
        before = live.now
        draw_tokens(lm.compute_logits(hidden), _SAMPLING, torch.zeros(games))
        return kept, live.peak - before, states


def simulate_learning(
    lm: CausalLM,
    game: GameSize,
    rows: int,
    *,
    entropy: bool = False,
    trained: Sequence[nn.Parameter] = (),
) -> Learning:
    """What a micro-batch of so many of the longest sequences holds. lm: on the meta device.

    entropy: whether the loss needs it. trained: weights whose gradients earlier micro-batches left,
    which do not count here.
    """
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    count, width = rows * game.trained, game.whole
    opening = min(game.opening, max(width - 2, 0))
    with without_data():
        ids = torch.zeros(rows, width, dtype=torch.long)
        places = torch.zeros(count, dtype=torch.long)
        with LiveBytes() as live:
            states = lm.compute_states_at(ids, opening, places)
            activations = live.now
            leaf = states.detach().requires_grad_()
            live.reset_peak()
            wanted = WantedTokens(torch.zeros(count, dtype=torch.long))
            found = read_states(lm, leaf, wanted, temperature=0.5, entropy=entropy)
            torch.autograd.backward([part.exp().sum() for part in found])
            logits = live.peak - activations
            live.reset_peak()
            if states.requires_grad:
                torch.autograd.backward(states, leaf.grad)
            backward = live.peak - activations
    for parameter in (*lm.model.parameters(), *trained):
        parameter.grad = None
    return Learning(activations=activations, logits=logits, backward=backward)
