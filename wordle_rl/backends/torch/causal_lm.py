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
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from wordle_rl.backends.loading import VALUE_HEAD, check_fit, read_weights
from wordle_rl.backends.sizes import LONGEST_WRITTEN_OUT
from wordle_rl.backends.torch.fast import head as fast_head
from wordle_rl.backends.torch.fast import training as fast_training
from wordle_rl.backends.torch.fast.layers import can_be_fast
from wordle_rl.backends.torch.fast.rollouts import FastTrunk
from wordle_rl.policy.batch import Blocks, arrange_blocks, find_ends, number_prefixes
from wordle_rl.policy.grammar import LOW, Options
from wordle_rl.policy.token_outputs import LanguageModel, Part, Wanted
from wordle_rl.runs.instantiate import ConfigError

_IN_BLOCKS = "in_blocks"  # our name for an attention, as transformers registers it


def recompute(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call a function. Its inputs are kept for the backward pass, which calls it again.

    Without gradients this is a plain call. The function must not draw random numbers. Source:
    "Training Deep Nets with Sublinear Memory Cost" (arXiv 1604.06174).
    """
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False, **options)


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
        weights = read_weights(folder / VALUE_HEAD)
        check_fit(folder / VALUE_HEAD, weights, self.state_dict())
        self.load_state_dict(weights)


class CausalLM(LanguageModel):
    """Trunk and head of a model, which may be wrapped by peft."""

    xp, without_gradients = torch, torch.inference_mode
    computes_once = True
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
        if self.computes_once:
            self._trunk.set_attn_implementation(_IN_BLOCKS)
        self._checkpoint_layers = find_layers(self._trunk) if checkpointing else []
        # The last position that has an embedding; all families but one compute positions.
        ends = self.config.model_type == "gpt2"
        self._last_position = self.config.max_position_embeddings - 1 if ends else None

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

    def to_numpy(self, array: torch.Tensor) -> NDArray[np.float32]:
        return array.cpu().numpy()

    def read_states(self, ids: NDArray[np.int64], trained: NDArray[np.bool_]) -> torch.Tensor:
        prefixes = number_prefixes(ids, find_ends(trained))
        rows = prefixes.numbers[:, :-1][trained[:, 1:]]
        targets, inverse = map(self.to_array, np.unique(rows, return_inverse=True))
        return self._compute_states(arrange_blocks(prefixes), targets)[inverse]

    def _compute_states(self, blocks: Blocks, wanted: torch.Tensor) -> torch.Tensor:
        """Hidden states [P, H] of the wanted rows [P] of blocks."""
        if self.is_fast and blocks.depths.max() < LONGEST_WRITTEN_OUT:
            rerun = bool(self._checkpoint_layers)
            return fast_training.compute_states(self._trunk, blocks, wanted, checkpointing=rerun)
        tokens, depths, keys, visible = map(self.to_array, blocks)
        distance = depths.view(len(keys), -1, 1) - depths[keys][:, None]
        with recompute_layers(self._checkpoint_layers):
            return self._trunk(
                input_ids=tokens[None],
                attention_mask=self._build_masks(visible, distance),
                position_ids=depths[None],
                use_cache=False,
                keys_of_blocks=keys,
            ).last_hidden_state[0, wanted]

    def add_at(self, size: int, place: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(size, device=self.device).index_add(0, place, values)

    def recompute_head(self, function: Callable[..., Any], states: torch.Tensor, start: int) -> Any:
        return recompute(function, states, start)

    def score_states(
        self, states: torch.Tensor, wanted: Wanted, temperature: float, entropy: bool
    ) -> tuple[torch.Tensor, ...]:
        weight, limit = self.head_weight, self.states_at_once(wanted)
        if entropy or weight is None or weight.requires_grad or weight.device.type != "cpu":
            return super().score_states(states, wanted, temperature, entropy)
        rows = min(limit, fast_head.ROWS)
        logprobs: Any = fast_head.LogProbs.apply(states, self, wanted, temperature, rows)
        return (logprobs,)

    def score_part(
        self, states: torch.Tensor, part: Part, temperature: float, entropy: bool
    ) -> tuple[torch.Tensor, ...]:
        weight = self.head_weight
        if weight is None:
            return super().score_part(states, part, temperature, entropy)
        scores: Any = fast_head.Scores.apply(states, weight, self, part, temperature, entropy)
        return scores

    def choose_rollout_trunk(self) -> CausalLM | FastTrunk:
        """The fastest trunk for rollouts with the current weights."""
        return FastTrunk(self._trunk) if self.is_fast else self

    @property
    def is_fast(self) -> bool:
        """Whether layers written out replace transformers' forward pass, see fast/."""
        return self.device.type == "cpu" and can_be_fast(self._trunk)

    def compute_last_hidden(
        self, ids: torch.Tensor, last: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """Hidden state [N, H] of one new token of each row, whose earlier tokens are cached.

        ids: [N, T] new tokens, padded on the right. last: [N] index of the wanted token. cache: the
        engine's SlotCache.
        """
        positions = cache.positions
        distance = positions[..., None] - torch.arange(cache.capacity, device=ids.device)
        if self._last_position is not None:  # only padding, which nobody reads, reaches beyond it
            positions = positions.clamp(max=self._last_position)
        hidden = self._trunk(
            input_ids=ids,
            attention_mask=self._build_masks(distance >= 0, distance),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return hidden[torch.arange(len(ids), device=ids.device), last]

    def _build_masks(
        self, visible: torch.Tensor, distance: torch.Tensor
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """The keys that each token sees, as bool [N, 1, T, keys].

        visible: bool [N or 1, T, keys], without a window. distance: how many positions a key is
        before the token. Models that name a kind for each layer take one mask for each kind.
        """
        windowed = visible & (distance < self._window) if self._window else visible
        if self._layer_types is None:
            return windowed[:, None]
        masks = {"full_attention": visible, "sliding_attention": windowed}
        return {kind: masks[kind][:, None] for kind in set(self._layer_types)}


def attend_in_blocks(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    keys_of_blocks: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention, for the rows [1, heads, M, D] of Blocks where keys [G, K] are given.

    attention_mask: bool [G, 1, B, K]. Returns [1, M, heads, D]. The backward pass gathers again
    what a block reads, because keeping it would take several times the memory of the rows.
    """

    if keys_of_blocks is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    groups, rows = len(keys_of_blocks), keys_of_blocks.flatten()

    def attend(*parts: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part[0].unflatten(1, (groups, -1)).transpose(0, 1)
            for part in (parts[0], *(tensor.index_select(2, rows) for tensor in parts[1:]))
        )
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]

    return recompute(attend, query, key, value).flatten(0, 1)[None], None


AttentionInterface.register(_IN_BLOCKS, attend_in_blocks)
AttentionMaskInterface.register(_IN_BLOCKS, sdpa_mask)


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
