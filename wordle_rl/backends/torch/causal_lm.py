"""A transformers causal language model, split into the parts that engine and trainer call.

The trunk computes hidden states. The head is applied only where a token is drawn or trained. Logits
are float32, whatever the precision of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache
from transformers.modeling_layers import GradientCheckpointingLayer

from wordle_rl.backends.loading import VALUE_HEAD, check_fit, read_weights
from wordle_rl.backends.sizes import LONGEST_WRITTEN_OUT, shares_openings
from wordle_rl.backends.torch.cache import SlotCache
from wordle_rl.backends.torch.fast import head as fast_head
from wordle_rl.backends.torch.fast import training as fast_training
from wordle_rl.backends.torch.fast.rollouts import FastQwen2, can_be_fast
from wordle_rl.policy.grammar import LOW, Options
from wordle_rl.policy.token_outputs import LanguageModel, Part, Wanted
from wordle_rl.runs.instantiate import ConfigError

_LEAST = 16  # tokens of an opening that is worth a forward pass of its own
_NOWHERE = 2**40  # the place of a key that nothing sees


def recompute(function: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Call a function. Its inputs are kept for the backward pass, which calls it again.

    Without gradients this is a plain call. The function must not draw random numbers. Source:
    "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174).
    """
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False, **named)


class ValueHead(nn.Module):
    """A linear function in float32 that starts at 0 everywhere."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Values [...] of hidden states [..., H]."""
        with torch.autocast(hidden.device.type, enabled=False):
            return hidden.float() @ self.weight + self.bias

    def save(self, folder: Path) -> None:
        save_file(self.state_dict(), folder / VALUE_HEAD)

    def load(self, folder: Path) -> None:
        """Restore what save() wrote. Raises CheckpointError unless it fits this head."""
        saved = read_weights(folder / VALUE_HEAD)
        check_fit(folder / VALUE_HEAD, saved, self.state_dict())
        self.load_state_dict(saved)


class CausalLM(LanguageModel):
    """Trunk and head of a model, which may be wrapped by peft."""

    xp = torch
    notes: tuple[str, ...] = ()  # a sentence on each thing that the user should know
    value_head: ValueHead | None

    def __init__(self, model: nn.Module, *, checkpointing: bool = False) -> None:
        """checkpointing: whether the backward pass computes each layer again."""
        self.model = model
        get_base = getattr(model, "get_base_model", None)  # peft's
        inner: Any = get_base() if get_base is not None else model
        self._inner, self._trunk = inner, inner.get_decoder()
        self._head: Any = inner.get_output_embeddings()
        self.vocabulary = len(self._head.weight)
        self.config: Any = self._trunk.config
        self._scale = getattr(self.config, "final_logit_softcapping", None)
        self._window: int = getattr(self.config, "sliding_window", None) or 0
        self._layer_types: list[str] | None = getattr(self.config, "layer_types", None)
        self._recomputed = find_layers(self._trunk) if checkpointing else []
        # The last place that has an embedding; all families but one compute places.
        ends = self.config.model_type == "gpt2"
        self._last_place = self.config.max_position_embeddings - 1 if ends else None

    @property
    def device(self) -> torch.device:
        return self._head.weight.device

    @property
    def head_weight(self) -> torch.Tensor | None:
        """Weights [V, H] of the head, if logits are their products with hidden states."""
        plain = type(self._head) is nn.Linear and self._scale is None
        return self._head.weight if plain else None

    def compute_logits(self, hidden: torch.Tensor, options: Options | None = None) -> torch.Tensor:
        weight = self._head.weight
        if options is not None:
            weight = weight[torch.from_numpy(options.tokens).to(weight.device)]
        with torch.autocast(self.device.type, enabled=False):
            logits = nn.functional.linear(hidden.to(weight.dtype), weight).float()
        if self._scale is not None:
            logits = torch.tanh(logits / self._scale) * self._scale
        if options is not None:
            logits = logits.masked_fill(torch.from_numpy(options.closed).to(logits.device), LOW)
        return logits

    def to_array(self, values: NDArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)

    def read_states(self, ids: NDArray[np.int64], trained: NDArray[np.bool_]) -> torch.Tensor:
        return self.compute_states(self.to_array(ids), self.to_array(trained)[:, 1:])

    def add_at(self, size: int, place: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(size, device=self.device).index_add(0, place, values)

    def recompute_head(self, function: Callable[..., Any], states: torch.Tensor, start: int) -> Any:
        return recompute(function, states, start)

    def score_states(
        self, states: torch.Tensor, wanted: Wanted, temperature: float, entropy: bool
    ) -> tuple[torch.Tensor, ...]:
        weight, most = self.head_weight, self.states_at_once(wanted)
        if entropy or weight is None or weight.requires_grad or weight.device.type != "cpu":
            return super().score_states(states, wanted, temperature, entropy)
        return (fast_head.compute_logprobs(self, states, wanted, temperature, most),)

    def score_part(
        self, states: torch.Tensor, part: Part, temperature: float, entropy: bool
    ) -> tuple[torch.Tensor, ...]:
        if self.head_weight is None:
            return super().score_part(states, part, temperature, entropy)
        return fast_head.score_part(self, states, part, temperature, entropy)

    def compute_hidden(self, ids: torch.Tensor, cache: DynamicCache | None = None) -> torch.Tensor:
        """Hidden states [N, T, H] of sequences [N, T], padded on the right.

        cache: an empty one, to which their keys and values are added.
        """
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        return self._trunk(
            input_ids=ids, attention_mask=self._build_masks(places, places), position_ids=places,
            past_key_values=cache, use_cache=cache is not None,
        ).last_hidden_state  # fmt: skip

    def compute_states(self, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Hidden states [P, H] at the wanted places of sequences, in order of row and place.

        ids: [N, T], padded on the right. wanted: bool [N, T - 1], False from the last token of each
        sequence on.
        """
        if self.is_fast and len(ids) and 2 <= ids.shape[1] <= LONGEST_WRITTEN_OUT:
            again = bool(self._recomputed)
            return fast_training.compute_states(self._trunk, ids, wanted, checkpointing=again)
        starts, firsts, group = find_openings(ids, wanted)
        if self._recomputed or 2 * len(firsts) > len(ids) or int(starts.max()) < _LEAST:
            with recompute_layers(self._recomputed):
                return self.compute_hidden(ids)[:, :-1][wanted]
        # Each opening is computed once, and its keys and values are copied to its sequences.
        cache, end = DynamicCache(), int(starts.max())
        self.compute_hidden(ids[firsts, :end], cache)
        cache.batch_select_indices(group)
        last = (wanted * torch.arange(wanted.shape[1], device=ids.device)).amax(1)
        width = int((last + 1 - starts).max())
        places = starts[:, None] + torch.arange(width, device=ids.device)
        inside = places.clamp(max=wanted.shape[1] - 1)
        opening = torch.arange(end, device=ids.device).expand(len(ids), -1)
        keys = torch.cat([opening.masked_fill(opening >= starts[:, None], _NOWHERE), places], dim=1)
        hidden = self._trunk(
            input_ids=ids.gather(1, inside), attention_mask=self._build_masks(places, keys),
            position_ids=inside, past_key_values=cache, use_cache=True,
        ).last_hidden_state  # fmt: skip
        return hidden[wanted.gather(1, inside) & (inside == places)]

    def choose_rollout_trunk(self) -> CausalLM | FastQwen2:
        """The fastest trunk for rollouts with the current weights."""
        return FastQwen2(self._trunk) if self.is_fast else self

    @property
    def shares_openings(self) -> bool:
        """Whether compute_states computes once what all sequences begin with."""
        again = bool(self._recomputed)
        return shares_openings(self.device.type, written_out=self.is_fast, checkpointing=again)

    @property
    def is_fast(self) -> bool:
        """Whether layers written out replace transformers' forward pass, see fast/."""
        return self.device.type == "cpu" and can_be_fast(self.model)

    def compute_last_hidden(
        self, ids: torch.Tensor, last: torch.Tensor, cache: SlotCache
    ) -> torch.Tensor:
        """Hidden state [N, H] of one new token of each row, whose earlier tokens are cached.

        ids: [N, T] new tokens, padded on the right. last: [N] index of the wanted token.
        """
        places = cache.positions
        if self._last_place is not None:  # only padding, which nobody reads, reaches beyond it
            places = places.clamp(max=self._last_place)
        hidden = self._trunk(
            input_ids=ids,
            attention_mask=self._build_masks(
                cache.positions, torch.arange(cache.capacity, device=ids.device)[None]
            ),
            position_ids=places, past_key_values=cache, use_cache=True,
        ).last_hidden_state  # fmt: skip
        return hidden[torch.arange(len(ids), device=ids.device), last]

    def _build_masks(
        self, positions: torch.Tensor, keys: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """The keys that each position [N or 1, T] sees, as bool [N or 1, 1, T, keys].

        keys: their places [N or 1, keys]. Models that name a kind for each layer take one mask for
        each kind. Padding comes after a row's tokens, so the causal mask hides it.
        """
        behind = positions[:, None, :, None] - keys[:, None, None, :]
        causal = behind >= 0
        windowed = causal & (behind < self._window) if self._window else causal
        if self._layer_types is None:
            return windowed
        masks = {"full_attention": causal, "sliding_attention": windowed}
        return {kind: masks[kind] for kind in set(self._layer_types)}


def find_openings(
    ids: torch.Tensor, wanted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find what several of N sequences begin with, up to the first wanted place.

    ids, wanted: as in compute_states. Returns how many tokens of each sequence are its opening [N],
    a sequence that begins with each opening [G], and the number of each sequence's opening [N].
    """
    rows, ends = ids.tolist(), wanted.int().argmax(1).tolist()
    known: dict[tuple[int, ...], int] = {}
    group = [
        known.setdefault(tuple(row[:end]), len(known)) for row, end in zip(rows, ends, strict=True)
    ]
    if 2 * len(known) > len(rows):  # then what all begin with
        ends = [fast_training.count_shared(ids, wanted)] * len(rows)
        group = [0] * len(rows)
    starts, groups = torch.tensor([ends, group], device=ids.device)
    firsts = torch.tensor([group.index(one) for one in range(max(group) + 1)], device=ids.device)
    return starts, firsts, groups


def find_layers(trunk: nn.Module) -> list[nn.Module]:
    """The layers of a transformers decoder. Raises ConfigError when it names none."""
    layers = [part for part in trunk.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"backend.gradient_checkpointing must be false for this model: transformers names no "
            f"layers of {type(trunk).__name__} that can be computed again"
        )
    return list(layers)


@contextmanager
def recompute_layers(layers: list[nn.Module]) -> Iterator[None]:
    """In this block, keep only the inputs of these layers for the backward pass.

    transformers' own switch works in training mode only, which would turn dropout on.
    """
    for layer in layers:
        layer.forward = partial(recompute, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the method of the class is back
