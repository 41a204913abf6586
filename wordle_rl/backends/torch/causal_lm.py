"""A transformers causal language model, split into the parts that engine and trainer call.

The trunk computes hidden states. The head is applied only where a token is drawn or trained. Logits
are float32, whatever the precision of the weights.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from wordle_rl.backends.torch import fast_training
from wordle_rl.backends.torch.attention import use_short_attention
from wordle_rl.backends.torch.cache import SlotCache
from wordle_rl.backends.torch.families import MASK_FORMS, last_place
from wordle_rl.backends.torch.fast_qwen2 import FastQwen2, can_be_fast
from wordle_rl.backends.torch.merged_lora import MergedLinear
from wordle_rl.backends.torch.recompute import find_layers, recompute_layers


class RolloutTrunk(Protocol):
    """CausalLM itself, or a faster implementation of the same."""

    def compute_last_hidden(
        self, ids: torch.Tensor, last: torch.Tensor, cache: SlotCache
    ) -> torch.Tensor:
        """As CausalLM.compute_last_hidden."""
        ...


class CausalLM:
    """Trunk and head of a model, which may be wrapped by peft."""

    def __init__(
        self, model: nn.Module, *, checkpointing: bool = False, device_type: str | None = None
    ) -> None:
        """checkpointing: whether the backward pass computes each layer again.

        device_type: the kind of device to compute as, for weights that are on none (meta).
        """
        self.model = model
        get_base = getattr(model, "get_base_model", None)  # peft's
        inner: Any = get_base() if get_base is not None else model
        self._trunk: Any = inner.get_decoder()
        self._head: Any = inner.get_output_embeddings()
        self.config: Any = self._trunk.config
        self._scale = getattr(self.config, "final_logit_softcapping", None)
        self._window: int = getattr(self.config, "sliding_window", None) or 0
        self._layer_types = set(getattr(self.config, "layer_types", None) or ["full_attention"])
        self._is_merged = any(isinstance(part, MergedLinear) for part in model.modules())
        self._recomputed = find_layers(self._trunk) if checkpointing else []
        self._mask_form = MASK_FORMS[self.config.model_type]
        self._last_place = last_place(self.config)
        self._device_type = device_type or self.device.type
        if self._device_type == "cpu":
            use_short_attention(inner)

    @property
    def layers(self) -> int:
        return self.config.num_hidden_layers

    @property
    def vocabulary(self) -> int:
        """Logits of each token."""
        return self._head.weight.shape[0]

    @property
    def device(self) -> torch.device:
        return self._head.weight.device

    @property
    def frozen_head(self) -> torch.Tensor | None:
        """Weights [V, H] of a head that is never trained, if its logits are a plain product."""
        plain = type(self._head) is nn.Linear and self._scale is None
        return self._head.weight if self._is_merged and plain else None

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [..., V] of hidden states [..., H]."""
        weight = self._head.weight
        with torch.autocast(self._device_type, enabled=False):
            logits = nn.functional.linear(hidden.to(weight.dtype), weight).float()
        if self._scale is not None:
            logits = torch.tanh(logits / self._scale) * self._scale
        return logits

    def compute_hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """Hidden states [N, T, H] of whole sequences, padded on the right."""
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        masks = self._build_masks(places, ids.shape[1])
        return self._trunk(
            input_ids=ids, attention_mask=masks, position_ids=places, use_cache=False
        ).last_hidden_state

    def compute_states(self, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Hidden states [P, H] at the wanted places of sequences, in order of row and place.

        ids: [N, T], padded on the right. wanted: bool [N, T - 1], False from the last token of each
        sequence on.
        """
        if self.is_fast and fast_training.can_train(ids):
            again = bool(self._recomputed)
            return fast_training.compute_states(self._trunk, ids, wanted, checkpointing=again)
        with recompute_layers(self._recomputed):
            return self.compute_hidden(ids)[:, :-1][wanted]

    def compute_states_at(
        self, ids: torch.Tensor, opening: int, places: torch.Tensor
    ) -> torch.Tensor:
        """As compute_states, where the opening and the places are known without looking at ids.

        opening: tokens that all sequences share. places: [P], counted as in fast_training.
        """
        if self.is_fast and fast_training.can_train(ids):
            again = bool(self._recomputed)
            return fast_training.compute_states_at(
                self._trunk, ids, opening, places, checkpointing=again
            )
        with recompute_layers(self._recomputed):
            return self.compute_hidden(ids)[:, :-1].flatten(0, 1)[places]

    def choose_rollout_trunk(self) -> RolloutTrunk:
        """The fastest trunk for rollouts with the current weights."""
        return FastQwen2(self._trunk) if self.is_fast else self

    @property
    def is_fast(self) -> bool:
        """Whether layers written out replace transformers' forward pass, see fast_training."""
        return self._device_type == "cpu" and can_be_fast(self.model)

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
            attention_mask=self._build_masks(cache.positions, cache.capacity),
            position_ids=places,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return hidden[torch.arange(len(ids), device=ids.device), last]

    def _build_masks(
        self, positions: torch.Tensor, keys: int
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """The keys that each position sees, as bool [N or 1, 1, T, keys] in the family's form.

        Padding comes after a row's tokens, so the causal mask hides it.
        """
        behind = positions[:, None, :, None] - torch.arange(keys, device=positions.device)
        causal = behind >= 0
        if self._mask_form == "causal":
            return causal
        if self._mask_form == "window":
            return causal & (behind < self._window) if self._window else causal
        masks = {"full_attention": causal}
        if "sliding_attention" in self._layer_types:
            masks["sliding_attention"] = causal & (behind < self._window)
        return masks
