"""A model without weights, which says what parts of a run would hold in memory.

torch's own code is run on tensors without data (see memory_simulation.py). MLX has no such
tensors: its weights, adapters, moments, keys and values are calculated, and its activations are
taken from torch, whose layers keep about the same.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from wordle_rl.backends.model_configs import find_config
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.load import add_lora
from wordle_rl.backends.torch.memory_simulation import simulate_learning, simulate_playing
from wordle_rl.backends.torch.optimizers import build_optimizers
from wordle_rl.policy.computing import Precision
from wordle_rl.policy.memory_plan import GameSize, Kept, Learning, Linear, Place, Playing
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
        config, self._lora = find_config(settings)
        self.config: Any = config.get_text_config()
        self._place: Place = place
        self._precision: Precision = precision
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # peft's about transformers
            shape = self.config if text_only else config
            model: Any = AutoModelForCausalLM.from_config(shape, dtype=dtype)
            self._base = {name: p.numel() for name, p in model.named_parameters()}
            if self._lora is not None:
                model = add_lora(model, self._lora, settings.seed)
        self.lm = CausalLM(model.eval(), "cpu" if place == "cpu" else "cuda")
        self._learned: dict[Any, Learning] = {}  # so that plans that differ elsewhere share it

    def keep(self, optim: Optim, *, reference: bool) -> Kept:
        """What a run always holds. reference: whether it has a reference model."""
        trained = [p for p in self.lm.model.parameters() if p.requires_grad]
        count = sum(p.numel() for p in trained)
        adapters = _FULL * count if self._lora else 0
        weights = self._weigh()
        moments, step = self._count_moments(optim)
        frozen = adapters if self._lora else weights - self._masters
        return Kept(
            parameters=sum(self._base.values()),
            trained=count,
            weights=weights,
            adapters=adapters,
            reference=(frozen or weights) if reference else 0,
            optimizer=moments,
            gradients=_FULL * count,
            step=step,
        )

    @property
    def _masters(self) -> int:
        """Bytes of float32 weights that do not compute, because a bfloat16 copy does."""
        copied = self._lora is None and self._precision == "bf16"
        return _FULL * sum(self._base.values()) if copied else 0

    def _weigh(self) -> int:
        size = _HALF if self._precision == "bf16" else _FULL
        return size * sum(self._base.values()) + self._masters

    def _count_moments(self, optim: Optim) -> tuple[int, int]:
        """Bytes of the optimiser's moments, and the most that a step needs on top."""
        moments = step = 0
        for optimizer in build_optimizers(self.lm.model, optim, self._precision):
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
        return simulate_playing(self.lm, game, games)

    def learn(
        self, game: GameSize, tokens: int, *, entropy: bool = False, checkpointing: bool = False
    ) -> Learning:
        """What a micro-batch of so many padded tokens holds, in rows of the longest games."""
        rows = max(tokens // game.whole, 1)
        key = (game, rows, entropy, checkpointing)
        if key not in self._learned:
            self._learned[key] = simulate_learning(
                self.lm, game, rows,
                entropy=entropy, checkpointing=checkpointing, holds_gradients=not self._masters,
            )  # fmt: skip
        return self._learned[key]


class PlannedMlxModel(PlannedModel):
    """A model on MLX, which loads only the text part of a multimodal model."""

    def __init__(self, settings: ModelSettings, *, precision: Precision) -> None:
        super().__init__(settings, place="mlx", precision=precision, text_only=True)
        found, _ = find_config(settings)
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
        changed = {name: getattr(kept, name) for name in Kept.__dataclass_fields__}
        changed["gradients"] = 2 * _FULL * kept.trained
        changed["step"] = max(kept.step, _FULL * kept.trained)
        return Kept(**changed)

    def play(self, game: GameSize, games: int) -> Playing:
        text = self.config
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        size = _HALF if self._precision == "bf16" else _FULL
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
        rows = max(tokens // game.whole, 1)
        at_once = min(rows * game.trained * self.config.vocab_size, _MLX_LOGITS)
        copies = _MLX_LOGIT_COPIES + entropy
        return Learning(
            activations=found.activations,
            logits=_FULL * at_once * copies,
            backward=found.backward,
        )


def plan_model(settings: ModelSettings, *, place: Place, precision: Precision) -> PlannedModel:
    """The model as it would be on a kind of device."""
    if place == "mlx":
        return PlannedMlxModel(settings, precision=precision)
    return PlannedModel(settings, place=place, precision=precision)
