"""A model without weights, which says what parts of a run would hold in memory.

torch's own code is run on tensors without data (see memory_simulation.py). MLX has no such
tensors: its weights, adapters, moments, keys and values are calculated, and its activations are
taken from torch, whose layers keep about the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from wordle_rl.backends.torch.adapters import LINEAR, add_lora
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.load import freeze_images
from wordle_rl.backends.torch.memory_simulation import simulate_learning, simulate_playing
from wordle_rl.backends.torch.merged_lora import count_sums
from wordle_rl.backends.torch.model_configs import find_config
from wordle_rl.backends.torch.optimizers import build_optimizers
from wordle_rl.backends.torch.quantize import count_bytes
from wordle_rl.backends.torch.trained_model import merge_for_speed
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.memory_plan import (
    GameSize,
    Kept,
    Learning,
    Linear,
    Place,
    Playing,
    fill_micro_batch,
)
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import ModelSettings

_FULL, _HALF = 4, 2  # bytes of a number in fp32 and in bf16
# Matrices of the gradient's size that Muon's iteration holds at once, and the vectors of AdamW
# on a CPU, which steps one weight at a time.
_MUON_COPIES, _ADAMW_COPIES = 5, 2
# As in backends/mlx/cache.py and causal_lm.py, which import MLX.
_MLX_CHUNK, _MLX_GROWTH, _MLX_LOGITS = 256, 64, 2**26
_MLX_LOGIT_COPIES = 3


class PlannedModel:
    """A model on torch. Raises ConfigError when its config cannot be found."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        place: Place,
        precision: Precision,
        text_only: bool = False,
    ) -> None:
        """text_only: leave out the part of a multimodal model that sees pictures."""
        config, self._lora = find_config(settings, "mlx" if place == "mlx" else "peft")
        self.config: Any = config.get_text_config()
        self._place: Place = place
        self._precision: Precision = precision
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        with torch.device("meta"):
            shape = self.config if text_only else config
            model: Any = AutoModelForCausalLM.from_config(shape, dtype=dtype)
            freeze_images(model)
            self._base = {name: p.numel() for name, p in model.named_parameters()}
            self._rounded = _find_rounded(model) if settings.quantize else []
            if self._lora is not None:
                model = add_lora(model, self._lora, settings.seed)
        model.eval()
        _fix_rotations(model)
        self.model = model
        device = "cpu" if place == "cpu" else "cuda"
        merges = place == "cpu" and self._lora is not None and not settings.quantize
        merged = merge_for_speed(model) if merges else None
        self._sums = [] if merged is None else count_sums(merged)
        computes = model if merged is None else merged
        self.lm = CausalLM(computes, device_type=device)
        self._lean = CausalLM(computes, device_type=device, checkpointing=True)
        self._learned: dict[Any, Learning] = {}  # so that plans that differ elsewhere share it

    @property
    def parameters(self) -> int:
        """How many there are, without adapters."""
        return sum(self._base.values())

    def keep(self, optim: Optim, *, reference: bool) -> Kept:
        """What a run always holds. reference: whether it has a reference model."""
        count = sum(p.numel() for p in self._trained)
        adapters = _FULL * count if self._lora else 0
        weights = self._weigh()
        moments, step = self._count_moments(optim)
        sums = self._size * sum(self._sums)
        frozen = (sums or adapters) if self._lora else weights - self._masters
        # New sums are made in float32, one at a time.
        refreshed = 2 * _FULL * max(self._sums, default=0)
        return Kept(
            parameters=self.parameters,
            trained=count,
            weights=weights,
            adapters=adapters,
            sums=sums,
            reference=(frozen or weights) if reference else 0,
            optimizer=moments,
            gradients=_FULL * count,
            step=max(step, refreshed),
        )

    @property
    def _trained(self) -> list[Any]:
        """Weights that the optimiser changes."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def _masters(self) -> int:
        """Bytes of float32 weights that do not compute, because a bfloat16 copy does."""
        copied = self._lora is None and self._precision == "bf16"
        return _FULL * self.parameters if copied else 0

    def _weigh(self) -> int:
        rounded = sum(self._rounded)
        rest = self.parameters - rounded
        return self._size * rest + count_bytes(rounded) + self._masters

    @property
    def _size(self) -> int:
        """Bytes of a number that the model computes with."""
        return _HALF if self._precision == "bf16" else _FULL

    @property
    def _unpacked(self) -> int:
        """Bytes of the largest matrix in 4 bits, which every product unpacks."""
        return self._size * max(self._rounded, default=0)

    def _count_moments(self, optim: Optim) -> tuple[int, int]:
        """Bytes of the optimiser's moments, and the most that a step needs on top."""
        moments = step = 0
        for optimizer in build_optimizers(self.model, optim, self._precision):
            sizes = [p.numel() for group in optimizer.param_groups for p in group["params"]]
            muon = isinstance(optimizer, torch.optim.Muon)
            moments += _FULL * (1 if muon else 2) * sum(sizes)
            if muon:
                most = _MUON_COPIES * max(sizes)
            elif self._place == "cpu":
                most = _ADAMW_COPIES * max(sizes)
            else:  # all weights at once
                most = sum(sizes)
            step = max(step, _FULL * most)
        return moments, step

    def play(self, game: GameSize, games: int) -> Playing:
        """What rollouts hold, measured where so many games are played at once."""
        playing = simulate_playing(self.lm, game, games)
        states = replace(playing.states, fixed=playing.states.fixed + self._unpacked)
        return replace(playing, states=states, opening=playing.opening + self._unpacked)

    def learn(
        self, game: GameSize, tokens: int, *, entropy: bool = False, checkpointing: bool = False
    ) -> Learning:
        """What a micro-batch of so many padded tokens holds, or of the longest game alone."""
        game, rows = fill_micro_batch(game, tokens)
        key = (game, rows, entropy, checkpointing)
        if key not in self._learned:
            found = simulate_learning(
                self._lean if checkpointing else self.lm, game, rows,
                entropy=entropy, trained=() if self._masters else self._trained,
            )  # fmt: skip
            self._learned[key] = replace(found, backward=found.backward + self._unpacked)
        return self._learned[key]


class PlannedMlxModel(PlannedModel):
    """A model on MLX, which loads only the text part of a multimodal model."""

    def __init__(self, settings: ModelSettings, *, precision: Precision) -> None:
        super().__init__(settings, place="mlx", precision=precision, text_only=True)
        found, _ = find_config(settings, "mlx")
        self._quantized: dict[str, int] = getattr(found, "quantization", None) or {}

    def _weigh(self) -> int:
        if not self._quantized:
            return super()._weigh()
        bits, group = self._quantized["bits"], self._quantized["group_size"]
        matrices = sum(n for name, n in self._base.items() if not name.endswith("norm.weight"))
        rest = sum(self._base.values()) - matrices
        # Each group of weights has a scale and a bias in half precision.
        return round(matrices * (bits / 8 + 2 * _HALF / group)) + rest * _HALF

    def keep(self, optim: Optim, *, reference: bool) -> Kept:
        kept = super().keep(optim, reference=reference)
        # A micro-batch's gradients are added to the sum of the earlier ones, and a step makes new
        # weights beside the old ones.
        gradient = _FULL * kept.trained
        return replace(kept, gradients=2 * gradient, step=max(kept.step, gradient))

    def play(self, game: GameSize, games: int) -> Playing:
        text = self.config
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        size = self._size
        kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
        window = getattr(text, "sliding_window", None) or game.whole
        room = -(-game.whole // _MLX_GROWTH) * _MLX_GROWTH
        ring = min(room, window + _MLX_CHUNK)
        keys = sum(ring if kind == "sliding_attention" else room for kind in kinds)
        token = 2 * heads * dim * size  # bytes in one layer
        inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
        fed = min(game.feed, _MLX_CHUNK) * (4 * text.hidden_size + 3 * inner) * size
        # A row's keys and values are copied layer by layer as they grow.
        states = max(fed, 2 * room * token)
        logits = _FULL * text.vocab_size * _MLX_LOGIT_COPIES
        return Playing(
            keys_values=Linear(fixed=0, each=keys * token),
            logits=Linear(fixed=0, each=logits),
            states=Linear(fixed=0, each=states),
        )

    def learn(
        self, game: GameSize, tokens: int, *, entropy: bool = False, checkpointing: bool = False
    ) -> Learning:
        found = super().learn(game, tokens, entropy=entropy, checkpointing=checkpointing)
        game, rows = fill_micro_batch(game, tokens)
        at_once = min(rows * game.trained * self.config.vocab_size, _MLX_LOGITS)
        copies = _MLX_LOGIT_COPIES + entropy
        return Learning(
            activations=found.activations,
            logits=_FULL * at_once * copies,
            backward=found.backward,
        )


def _find_rounded(model: Any) -> list[int]:
    """Weights in each matrix that bitsandbytes rounds, which are all but the head's."""
    head = model.get_output_embeddings()
    return [
        module.weight.numel()
        for module in model.modules()
        if isinstance(module, LINEAR) and module is not head
    ]


def _fix_rotations(model: Any) -> None:
    """Let rotations that depend on the longest row be computed without looking at the rows."""
    for module in model.modules():
        if isinstance(getattr(module, "rope_type", None), str):
            module.rope_type = "default"


def plan_model(settings: ModelSettings, *, place: Place, precision: Precision) -> PlannedModel:
    """The model as it would be on a kind of device."""
    if place == "mlx":
        return PlannedMlxModel(settings, precision=precision)
    return PlannedModel(settings, place=place, precision=precision)
