"""What a run holds in memory, and what fits into a given memory. Plain arithmetic.

All sizes are in bytes, and a GB is 10**9 bytes. A run plays, then learns, and each phase frees what
it needed. So the peak is what a run always holds plus the larger phase. The sums follow what
transformers' layers keep for the backward pass. They were within 15 % of a count of every tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from wordle_rl.policy.batch import LOGITS_BYTES
from wordle_rl.policy.settings import LoraSettings

GB = 1e9  # bytes
MACHINES = (16, 24, 48, 80, 141)  # GB of memory that the table compares with
DEFAULT_MICRO_BATCH = 4096  # padded tokens, where auto has no plan to choose by
MOST_MICRO_BATCH = 16_384  # auto takes no more, since larger products are no faster
LEAST_MICRO_BATCH = 256

Place = Literal["cpu", "cuda", "mps", "mlx"]

_FULL, _HALF = 4, 2  # bytes of a number in fp32 and in bf16
_FAST, _UNGATED = ("qwen2", "llama"), ("gpt2", "gpt_neox", "phi", "starcoder2")
_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes of a weight in 4 bits, with its scales
_GROWTH = 17 / 16  # keys and values grow by up to an eighth at once
_OUT_OF_MEMORY = (  # what other errors than torch's OutOfMemoryError say: CPU, MPS, cuBLAS, MLX
    "can't allocate memory",
    "MPS backend out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "[metal::malloc]",
    "Insufficient Memory",
)


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether torch or MLX raised this because memory ran out."""
    named = type(error).__name__ == "OutOfMemoryError"
    return named or any(sign in str(error) for sign in _OUT_OF_MEMORY)


class Sizes(NamedTuple):
    """The sizes of a decoder, as its config.json says them."""

    vocabulary: int
    hidden: int
    inner: int  # width of the feed-forward part
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool = True  # whether embedding and head are the same weights
    gated: bool = True  # whether the feed-forward part has a gate
    pictures: int = 0  # weights of the part that sees pictures
    norms: int = 2  # of a layer
    fast: bool = False  # whether a CPU computes shared openings once, and LoRA through sums
    bits: float = 0.0  # of a weight whose file is quantised

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each matrix of a layer."""
        hidden, inner = self.hidden, self.inner
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        gate = {"gate_proj": (hidden, inner)} if self.gated else {}
        return {
            "q_proj": (hidden, queries),
            "k_proj": (hidden, keys),
            "v_proj": (hidden, keys),
            "o_proj": (queries, hidden),
            **gate,
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def weights_in_layers(self) -> int:
        """Weights of all layers' matrices."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.matrices.values())

    @property
    def parameters(self) -> int:
        """Weights, but for biases and most norms, which are a few thousandths."""
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.weights_in_layers + ends + (2 * self.layers + 1) * self.hidden

    def keys_values(self, size: int = _HALF) -> int:
        """Bytes of a token's keys and values in all layers. size: bytes of a number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * size

    def find_adapted(self, lora: LoraSettings) -> list[tuple[int, int]]:
        """Inputs and outputs of each matrix of a layer that an adapter changes."""
        targets = lora.targets
        if targets == "all-linear":
            return list(self.matrices.values())
        pattern = targets if isinstance(targets, str) else "|".join(rf"(.*\.)?{t}" for t in targets)
        return [
            size
            for name, size in self.matrices.items()
            if any(
                re.fullmatch(pattern, f"{before}{name}")
                for before in ("", "model.layers.0.self_attn.", "model.layers.0.mlp.")
            )
        ]


def read_sizes(config: Any) -> Sizes:
    """The sizes in a transformers config."""
    text = config.get_text_config()
    heads = text.num_attention_heads
    seen = getattr(config, "vision_config", None)
    quantized = getattr(config, "quantization", None)  # mlx-lm's, with a scale and a bias a group
    return Sizes(
        vocabulary=text.vocab_size,
        hidden=text.hidden_size,
        inner=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        tied=text.tie_word_embeddings,
        gated=text.model_type not in _UNGATED,
        pictures=_count_pictures(seen) if seen else 0,
        norms=4 if text.model_type.startswith("gemma") else 2,
        fast=text.model_type in _FAST,
        bits=quantized["bits"] + 32 / quantized["group_size"] if quantized else 0.0,
    )


def _count_pictures(config: Any) -> int:
    hidden, inner = config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * (4 * hidden**2 + 2 * hidden * inner)


_GEMMA_4B = Sizes(262_208, 2560, 10_240, 34, 8, 4, 256, pictures=411_000_000, norms=4)
# So that memory can be planned before anything is downloaded.
# Source: huggingface.co/<name>/blob/main/config.json of each.
KNOWN: dict[str, Sizes] = {
    "Qwen/Qwen2.5-0.5B-Instruct": Sizes(151_936, 896, 4864, 24, 14, 2, 64, fast=True),
    "Qwen/Qwen2.5-1.5B-Instruct": Sizes(151_936, 1536, 8960, 28, 12, 2, 128, fast=True),
    "Qwen/Qwen2.5-3B-Instruct": Sizes(151_936, 2048, 11_008, 36, 16, 2, 128, fast=True),
    "Qwen/Qwen3-1.7B": Sizes(151_936, 2048, 6144, 28, 16, 8, 128),
    "google/gemma-3-1b-it": Sizes(262_144, 1152, 6912, 26, 4, 1, 256, norms=4),
    "google/gemma-3-4b-it": _GEMMA_4B,
    "mlx-community/gemma-3-4b-it-bf16": _GEMMA_4B,
    "mlx-community/gemma-3-4b-it-4bit": _GEMMA_4B._replace(bits=4.5),
    "openai-community/gpt2": Sizes(50_257, 768, 3072, 12, 12, 12, 64, gated=False),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Sizes(49_152, 576, 1536, 30, 9, 3, 64, fast=True),
}


class GameSize(NamedTuple):
    """Tokens of the longest game."""

    opening: int  # up to the first answer
    feed: int  # most tokens between two answers
    whole: int  # of all prompts and answers that one row holds at once
    trained: int  # sampled tokens in a sequence that is trained


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The memory of a run on one device."""

    sizes: Sizes
    place: Place
    half: bool  # computes in bf16
    lora: LoraSettings | None
    quantized: bool = False  # the base is rounded to 4 bits while it is loaded
    muon: bool = False
    has_reference: bool = False
    needs_entropy: bool = False
    game: GameSize  # in training
    held_out: GameSize  # in validation and reports
    games: int  # at once in training, 0 where a teacher plays
    held_out_games: int
    micro_batch_tokens: int
    checkpointing: bool = False

    @property
    def size(self) -> int:
        """Bytes of a number that the model computes with."""
        return _HALF if self.half else _FULL

    @property
    def parameters(self) -> int:
        sizes = self.sizes  # MLX loads the text part alone
        return sizes.parameters + (0 if self.place == "mlx" else sizes.pictures)

    @property
    def trained(self) -> int:
        """How many numbers are trained."""
        if self.lora is None:
            return self.sizes.parameters
        return self.lora.rank * self.sizes.layers * sum(map(sum, self._adapted))

    @property
    def _adapted(self) -> list[tuple[int, int]]:
        return self.sizes.find_adapted(self.lora) if self.lora else []

    @property
    def weights(self) -> float:
        if self.place == "mlx" and self.sizes.bits:
            return self.parameters * self.sizes.bits / 8
        rounded = self.sizes.weights_in_layers if self.quantized else 0
        masters = _FULL * self.parameters if self.half and not self.lora else 0
        return (self.parameters - rounded) * self.size + rounded * _NF4 + masters

    @property
    def adapters(self) -> float:
        return _FULL * self.trained if self.lora else 0

    @property
    def sums(self) -> float:
        """Sums of base and adapter, through which LoRA computes on a CPU."""
        if self.place != "cpu" or self.quantized or not self.sizes.fast:
            return 0
        return self.size * self.sizes.layers * sum(i * o for i, o in self._adapted)

    @property
    def reference(self) -> float:
        """The frozen copy for the KL term."""
        if not self.has_reference:
            return 0
        return (self.sums or self.adapters) if self.lora else self.parameters * self.size

    @property
    def optimizer(self) -> float:
        """Two moments of each trained number; one of a matrix with Muon."""
        matrices = self.trained if self.lora else self.sizes.weights_in_layers
        return _FULL * (2 * self.trained - (matrices if self.muon else 0))

    @property
    def gradients(self) -> float:
        """On MLX those of a micro-batch are added to the sum of the earlier ones."""
        return _FULL * self.trained * (2 if self.place == "mlx" else 1)

    @property
    def always(self) -> float:
        return self.weights + self.adapters + self.sums + self.reference + self.optimizer

    def keys_values(self, game: GameSize, games: int) -> float:
        """Bytes of the keys and values of so many games at their longest."""
        sizes, room = self.sizes, game.whole
        if self.place == "mlx":
            room = -(-room // 64) * 64
        growth = 1 if self.place == "mlx" else _GROWTH
        return games * sizes.keys_values(self.size) * room * growth

    def logits_playing(self, games: int) -> float:
        """Logits of one token of each game, and their copies while a token is drawn."""
        return games * self.sizes.vocabulary * _FULL * (3 if self.place == "mlx" else 4)

    def _play(self, game: GameSize, games: int) -> float:
        """Keys, values and the states of the tokens that are fed at once."""
        sizes, kept = self.sizes, self.keys_values(game, games)
        layer = 2 * games * game.whole * sizes.head_dim * self.size  # of one head
        # MLX copies a layer that grows; torch repeats a layer's keys and values for all heads.
        if self.place == "mlx":
            layer *= 2 * sizes.kv_heads
        elif sizes.heads != sizes.kv_heads:
            layer *= sizes.heads * _GROWTH
        else:
            layer *= sizes.kv_heads
        fed = games * min(game.feed, 256) * (4 * sizes.hidden + 3 * sizes.inner) * self.size
        return kept + max(layer, fed, self.logits_playing(games))

    def while_training(self, games: int) -> float:
        """The peak of rollouts in training with so many games at once."""
        return self.always + self._play(self.game, games)

    def while_held_out(self, games: int) -> float:
        """The peak of validation and reports with so many games at once."""
        return self.always + self._play(self.held_out, games)

    @property
    def while_playing(self) -> float:
        return max(self.while_training(self.games), self.while_held_out(self.held_out_games))

    @property
    def _rows(self) -> int:
        """Games in a full micro-batch, some of them a little shorter than the longest."""
        return max(-(-self.micro_batch_tokens // self.game.whole), 1)

    @property
    def _computed(self) -> int:
        """Tokens of a full micro-batch that the layers compute."""
        once = self.place == "cpu" and self.sizes.fast
        shared = (self._rows - 1) * self.game.opening if once else 0
        return max(self.micro_batch_tokens, self.game.whole) - shared

    def _layer(self) -> float:
        """Bytes that one layer keeps of a token for its backward pass."""
        sizes, size = self.sizes, self.size
        queries = sizes.heads * sizes.head_dim
        attention = size * 4 * queries  # queries, keys and values of all heads, and the output
        norms = _FULL * sizes.norms * sizes.hidden  # their inputs in fp32
        gate = size * 3 * sizes.inner
        if self.lora is None:
            return norms + attention + gate + size * (4 * sizes.hidden + sizes.inner)
        # An adapter keeps its input, in fp32 if the model computes in bf16.
        inputs = _FULL * sum(inputs for inputs, _ in self._adapted)
        return norms + attention + gate + inputs + _FULL * self.lora.rank * len(self._adapted)

    def activations(self, *, checkpointing: bool) -> float:
        """What a micro-batch keeps for the backward pass."""
        tokens = self._computed
        each = self.size * self.sizes.hidden if checkpointing else self._layer()
        return tokens * (each * self.sizes.layers + _FULL * self.sizes.hidden)

    @property
    def logits_learning(self) -> float:
        """Logits of trained tokens, in parts, and what is made of them for the gradient."""
        whole = max(self.micro_batch_tokens, self.game.whole) // self._rows
        tokens = self._rows * max(min(self.game.trained, whole - self.game.opening), 1)
        at_once = min(tokens * self.sizes.vocabulary * _FULL, LOGITS_BYTES)
        return at_once * ((3 if self.place == "mlx" else 4) + self.needs_entropy)

    def while_learning(self, *, checkpointing: bool | None = None) -> float:
        """The peak of updates. checkpointing: None for what the run uses."""
        lean = self.checkpointing if checkpointing is None else checkpointing
        again = self._computed * self._layer() if lean else 0
        part = self.activations(checkpointing=lean) + max(self.logits_learning, again)
        step = 0 if self.place == "cpu" else _FULL * self.trained  # new weights beside the old
        return self.always + self.gradients + max(part, step)

    @property
    def total(self) -> float:
        return max(self.while_playing, self.while_learning())

    def find_games(self, limit: float) -> int:
        """The most games at once in training that fit into this many bytes."""
        return _count(self.while_training, limit, self.games)

    def find_held_out_games(self, limit: float) -> int:
        """The most games at once in validation and reports that fit."""
        return _count(self.while_held_out, limit, self.held_out_games)

    def find_tokens(self, limit: float, most: int = MOST_MICRO_BATCH) -> int:
        """The largest of most, most / 2, most / 4, ... padded tokens that fits, 0 if none does."""
        while most >= LEAST_MICRO_BATCH:
            if replace(self, micro_batch_tokens=most).while_learning() <= limit:
                return most
            if most <= self.game.whole:  # a longer game is a micro-batch of its own
                return 0
            most //= 2
        return 0


def _count(need: Callable[[int], float], limit: float, most: int) -> int:
    """The largest number up to `most` whose need fits, where needs are a line of the number."""
    fixed = need(0)
    return max(min(most, int((limit - fixed) / (need(1) - fixed))), 0)


def usable(memory: float, place: Place) -> float:
    """Bytes of a machine's memory that a run may plan with.

    The rest is for the driver, the libraries and the gaps between blocks. macOS lets a GPU use two
    thirds of the memory, or three quarters of more than 36 GB.
    """
    if place in ("mlx", "mps"):
        return memory * (0.75 if memory > 36 * GB else 2 / 3)
    return memory * 0.92


_ROWS: tuple[tuple[str, Callable[[Plan], float]], ...] = (  # bytes of each part
    ("weights", lambda p: p.weights),
    ("adapters", lambda p: p.adapters),
    ("sums with the base", lambda p: p.sums),
    ("reference", lambda p: p.reference),
    ("optimiser", lambda p: p.optimizer),
    ("gradients", lambda p: p.gradients),
    (
        "keys and values",
        lambda p: max(p.keys_values(p.game, p.games), p.keys_values(p.held_out, p.held_out_games)),
    ),
    ("logits while playing", lambda p: p.logits_playing(max(p.games, p.held_out_games))),
    ("activations", lambda p: p.activations(checkpointing=False)),
    ("activations, checkpointing", lambda p: p.activations(checkpointing=True)),
    ("logits while learning", lambda p: p.logits_learning),
    ("peak while playing", lambda p: p.while_playing),
    ("peak while learning", lambda p: p.while_learning(checkpointing=False)),
    ("the same, checkpointing", lambda p: p.while_learning(checkpointing=True)),
)


def format_table(names: Sequence[str], plans: Sequence[Plan]) -> str:
    """The plans as a table in GB, each below its name."""
    rows = [
        ["", *names],
        ["games at once", *(f"{p.games:,}" for p in plans)],
        ["the same outside training", *(f"{p.held_out_games:,}" for p in plans)],
        ["tokens of a game", *(f"{p.game.whole:,}" for p in plans)],
        ["tokens of a micro-batch", *(f"{p.micro_batch_tokens:,}" for p in plans)],
        ["bytes of a token's keys, values", *(f"{p.sizes.keys_values(p.size):,}" for p in plans)],
        *([name, *(f"{part(p) / GB:.2f}" for p in plans)] for name, part in _ROWS),
        *([f"fits {size} GB", *(fits(p, size) for p in plans)] for size in MACHINES),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def fits(plan: Plan, size: float) -> str:
    """Whether a plan fits into a machine of so many GB, or what must change for it.

    That is gradient checkpointing, or fewer games at once.
    """
    limit = usable(size * GB, plan.place)
    found = (
        (plan.find_games(limit), plan.games),
        (plan.find_held_out_games(limit), plan.held_out_games),
    )
    fewer = [games for games, wanted in found if games < wanted]
    if 0 in fewer or plan.while_learning(checkpointing=True) > limit:
        return "no"
    parts = [f"{min(fewer)} games" if fewer else "yes"]
    if plan.while_learning(checkpointing=False) > limit:
        parts.append("checkpointing")
    return ", ".join(parts)
