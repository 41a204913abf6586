"""What a run holds in memory, and what fits. Planned by arithmetic before a model is loaded.

All sizes are in bytes, and a GB is 10**9 bytes. A run plays, then learns, and each phase frees what
it needed. So the peak is what a run always holds plus the larger phase. The sums follow what
transformers' layers keep for the backward pass. They were within 15 % of a count of every tensor.
The plan decides whether a run can start, and how it begins; where memory ends anyway, rollouts and
micro-batches are halved. MPS, MLX and most CPUs do not say so in time.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from wordle_rl.backends.sizes import LONGEST_WRITTEN_OUT, Sizes, find_sizes, is_large
from wordle_rl.game.rules import Clue, State
from wordle_rl.policy.batch import LOGITS_BYTES
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.prompts.parser import TOOL
from wordle_rl.rollouts.forms import earlier_turns
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.validation import choose_report_limit

DeviceKind = Literal["cpu", "cuda", "mps", "mlx"]

GB = 1e9  # bytes
_FULL, _HALF = 4, 2  # bytes of a number in fp32, and in bf16 or fp16
_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes of a weight in 4 bits, with its scales
_GROWTH = 17 / 16  # keys and values grow by up to an eighth at once
_TEMPLATE = 8  # tokens that a chat template writes around a message
_MAX_TOKENS = 65_536  # tokens, the most that auto gives a micro-batch
# What fit() changes, as a user sets it.
_SETTINGS = {
    "games": "rollout.games_at_once",
    "held_out_games": "model.games_at_once",
    "micro_batch_tokens": "backend.micro_batch_tokens",
    "checkpointing": "backend.gradient_checkpointing",
}
# Guesses whose clues fill the prompts of prompt=state.
_GUESSES = (("slate", 83), ("crony", 27), ("humid", 9), ("plumb", 36), ("vague", 54), ("wharf", 1))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The memory of a run on one device."""

    sizes: Sizes
    device_kind: DeviceKind
    half: bool  # computes in bf16 or fp16
    lora: LoraSettings | None
    quantized: bool = False  # the base is rounded to 4 bits while it is loaded
    muon: bool = False
    has_reference: bool = False
    reference: float = 0  # bytes of another model that is the reference
    longest: int  # tokens of the longest game or dialogue
    games: int  # at once in training, 0 where a teacher plays
    group: int = 1  # games that always play together
    held_out_games: int  # at once in validation and reports
    beams: int = 1  # answers that each of these follows
    micro_batch_tokens: int  # that the layers compute at once; a longer game is computed whole
    checkpointing: bool = False

    @property
    def size(self) -> int:
        """Of a number that the model computes with."""
        return _HALF if self.half else _FULL

    @property
    def parameters(self) -> int:
        """How many weights there are. MLX loads the text part alone."""
        return self.sizes.parameters + (0 if self.device_kind == "mlx" else self.sizes.pictures)

    @property
    def _lora_shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each matrix of a layer that an adapter changes."""
        targets = [] if self.lora is None else self.lora.targets
        if isinstance(targets, list):
            targets = "|".join(rf".*\.{target}" for target in targets)
        pattern = targets.replace("all-linear", ".*")
        by_name = {f"model.layers.0.{name}": size for name, size in self.sizes.matrices.items()}
        return [size for name, size in by_name.items() if re.fullmatch(pattern, name)]

    @property
    def trained(self) -> int:
        """How many numbers are trained."""
        if self.lora is None:
            return self.sizes.parameters
        return self.lora.rank * self.sizes.layers * sum(map(sum, self._lora_shapes))

    @property
    def parts(self) -> dict[str, float]:
        """What the run always holds."""
        sizes, lora = self.sizes, self.lora
        layer_weights = sizes.weights_in_layers
        num_rounded = layer_weights if self.quantized else 0
        weights = (self.parameters - num_rounded) * self.size + num_rounded * _NF4
        if self.device_kind == "mlx" and sizes.bits:
            weights = self.parameters * sizes.bits / 8
        elif self.half and lora is None:
            weights += _FULL * self.parameters  # the trained ones, which the others are rounded of
        adapters = _FULL * self.trained if lora else 0
        sums = 0  # of base and adapter, through which LoRA computes on a CPU
        if self.device_kind == "cpu" and sizes.known and not self.quantized:
            sums = self.size * sizes.layers * sum(i * o for i, o in self._lora_shapes)
        reference = self.reference or (adapters if lora else self.parameters * self.size)
        muon_weights = 0
        if self.muon:
            muon_weights = self.trained if lora else layer_weights
        return {
            "weights": weights,
            "adapters": adapters,
            "sums with the base": sums,
            "reference": reference if self.has_reference else 0,
            "optimiser": _FULL * (2 * self.trained - muon_weights),  # Muon keeps one moment
        }

    @property
    def always(self) -> float:
        return sum(self.parts.values())

    @property
    def gradients(self) -> float:
        """On MLX those of a micro-batch are added to the sum of the earlier ones."""
        return _FULL * self.trained * (2 if self.device_kind == "mlx" else 1)

    def keys_values(self, games: int) -> float:
        """Keys and values of so many games at their longest."""
        room = -(-self.longest // 64) * 64 if self.device_kind == "mlx" else self.longest * _GROWTH
        room *= 1 if self.sizes.known else 2  # transformers' own cache is copied as rows leave
        return games * room * self.sizes.keys_values(self.size)

    def logits(self, tokens: int) -> float:
        """Logits of so many tokens, and what is made of them: two tables at once, three in MLX."""
        tables = 3 if self.device_kind == "mlx" else 2
        return tokens * self.sizes.vocabulary * _FULL * tables

    def while_playing(self, games: int) -> float:
        """The peak with so many games at once."""
        # MLX copies a layer that grows; torch repeats a layer's keys and values for all heads.
        heads, kv = self.sizes.heads, self.sizes.kv_heads
        copies = kv if heads == kv else heads * _GROWTH
        if self.device_kind == "mlx":
            copies = 2 * kv
        layer = copies * 2 * games * self.longest * self.sizes.head_dim * self.size
        return self.always + self.keys_values(games) + max(layer, self.logits(games))

    @property
    def peak_playing(self) -> float:
        return self.while_playing(max(self.games, self.held_out_games * self.beams))

    @property
    def _layer(self) -> float:
        """What one layer keeps of a token for its backward pass."""
        sizes, size = self.sizes, self.size
        attention = size * 4 * sizes.heads * sizes.head_dim  # queries, keys, values, the output
        if self.device_kind == "cpu" and sizes.fast and self.longest <= LONGEST_WRITTEN_OUT:
            attention += size * sizes.heads * self.longest  # layers written out keep their weights
        norms = _FULL * sizes.norms * sizes.hidden  # their inputs in fp32
        tape = norms + attention + size * 3 * sizes.inner  # and the gate
        if self.lora is None:
            return tape + size * (4 * sizes.hidden + sizes.inner)
        # An adapter keeps its input, in fp32 if the model computes in bf16.
        inputs = sum(inputs for inputs, _ in self._lora_shapes)
        return tape + _FULL * (inputs + self.lora.rank * len(self._lora_shapes))

    @property
    def peak_learning(self) -> float:
        sizes, tokens = self.sizes, max(self.micro_batch_tokens, self.longest)
        logits = min(self.logits(tokens), self.logits(1) * LOGITS_BYTES / sizes.vocabulary / _FULL)
        tape, rerun = tokens * sizes.layers * self._layer, 0.0
        if self.checkpointing:
            tape, rerun = tokens * sizes.layers * self.size * sizes.hidden, tokens * self._layer
        states = tokens * _FULL * sizes.hidden  # the last ones
        update = 0 if self.device_kind == "cpu" else _FULL * self.trained  # weights, beside the old
        return self.always + self.gradients + max(tape + states + max(logits, rerun), update)

    @property
    def peak(self) -> float:
        return max(self.peak_playing, self.peak_learning)

    def find_games(self, limit: float) -> int:
        """The most games at once that fit into this many bytes."""
        base = self.while_playing(0)
        return max(int((limit - base) / (self.while_playing(1) - base)), 0)

    def find_tokens(self, limit: float) -> int:
        """The most tokens at once that fit: all, half, a quarter, ... 0 if one game does not."""
        tokens = self.micro_batch_tokens
        while replace(self, micro_batch_tokens=tokens).peak_learning > limit:
            if tokens <= self.longest:
                return 0
            tokens //= 2
        return tokens

    def fit(self, limit: float) -> Plan | None:
        """A plan that fits into this many bytes and changes no game; None if there is none.

        That is fewer games at once, smaller micro-batches, and layers that are computed again.
        """
        max_games = self.find_games(limit)
        games = min(self.games, max_games // self.group * self.group)
        val_games = min(self.held_out_games, max_games // self.beams)
        for plan in (self, replace(self, checkpointing=True)):
            tokens = plan.find_tokens(limit)
            if tokens and val_games and (games or not self.games):
                return replace(
                    plan, micro_batch_tokens=tokens, games=games, held_out_games=val_games
                )
        return None

    def describe_changes(self, fitted: Plan) -> str:
        """What fit() changed, as settings; "" for nothing."""
        before, now = vars(self), vars(fitted)
        names = [name for name in _SETTINGS if now[name] != before[name]]
        return " ".join(f"{_SETTINGS[name]}={str(now[name]).lower()}" for name in names)

    def __str__(self) -> str:
        games = f"{self.games} games at once, {self.held_out_games} in validation"
        note = ", layers computed again" if self.checkpointing else ""
        reference = self.parts["reference"] / GB
        return (
            f"always {self.always / GB:.2f} GB"
            + (f", {reference:.2f} of them for a reference" if reference else "")
            + f"\n  {self.peak_playing / GB:.2f} GB to play {games}"
            f"\n  {self.peak_learning / GB:.2f} GB to learn micro-batches of "
            f"{self.micro_batch_tokens:,} tokens or one game of {self.longest:,}{note}"
        )


def usable(memory: float, device_kind: DeviceKind) -> float:
    """Bytes of a machine's memory that a run may plan with.

    The rest is for the driver, the libraries and the gaps between blocks. macOS lets a GPU use two
    thirds of the memory, or three quarters of more than 36 GB.
    """
    if device_kind in ("mlx", "mps"):
        return memory * (0.75 if memory > 36 * GB else 2 / 3)
    return memory * 0.92


def find_machine(plan: Plan, *, in_parts: bool) -> int:
    """GB of memory of the smallest machine for a plan. in_parts: with what fit() may change."""

    def is_enough(size: int) -> bool:
        limit = usable(size * GB, plan.device_kind)
        return plan.peak <= limit or (in_parts and plan.fit(limit) is not None)

    return next(filter(is_enough, itertools.count(1)))


def settle_memory(
    setup: Experiment, device_kind: DeviceKind, precision: str, memory: float
) -> Experiment:
    """Plan a run of a pretrained model before it is loaded. Returns it with sizes that fit.

    memory: bytes of the device for this process. Prints a few lines. Raises ConfigError in one line
    when the run cannot fit, with what takes less.
    """
    trainer, model = setup.trainer, setup.model
    if not any(is_large(network) for network in (model, setup.reference) if network):
        return setup
    cap = trainer.memory_limit_gb if device_kind == "cpu" else trainer.device_memory_limit_gb
    limit = min(usable(memory, device_kind), float("inf") if cap is None else cap * GB)
    request = widen(plan_memory(setup, device_kind, precision), setup, limit)
    plan = request.fit(limit)
    if plan is None:
        adapter = "" if model.lora or model.is_adapter else "'model.lora={rank: 16}', "
        raise ConfigError(
            f"model={model.name} in {precision} on {device_kind} does not fit: {limit / GB:.1f} GB "
            "may be used: choose a smaller model, num_generations, sampling.max_tokens or "
            f"sampling.beams, {adapter}or model.quantize=4bit"
        )
    budget = min(limit, usable(memory * free_memory() / measure_memory(), "cpu"))
    if device_kind != "cuda" and plan.peak > budget and (fallback := request.fit(budget)):
        plan, limit = fallback, budget  # other programs have the rest
    print(f"memory plan for {limit / GB:.2f} GB on {device_kind}: {plan}")
    if changes := request.describe_changes(plan):
        print(f"  chosen so that it fits: {changes}")
    if device_kind != "cuda":
        print(f"  {describe_free(plan.peak)}")
    sys.stdout.flush()
    return _apply(plan, request, setup)


def widen(plan: Plan, setup: Experiment, limit: float) -> Plan:
    """The plan with the micro-batches that auto takes where a run may use so many bytes.

    On CUDA they are as large as half of the memory allows.
    """
    if setup.backend.micro_batch_tokens != "auto" or plan.device_kind != "cuda":
        return plan
    tokens = replace(plan, micro_batch_tokens=_MAX_TOKENS).find_tokens(limit / 2)
    return replace(plan, micro_batch_tokens=max(tokens, plan.micro_batch_tokens))


def _apply(plan: Plan, request: Plan, setup: Experiment) -> Experiment:
    """The experiment with what a plan changed of the one that was asked for."""
    recipe, model = setup.recipe, setup.model
    backend: Any = setup.backend
    if plan.games != request.games:
        rollout = replace(recipe.rollout, games_at_once=plan.games)
        recipe = replace(recipe, rollout=rollout)
    if plan.held_out_games != request.held_out_games:
        model = replace(model, games_at_once=plan.held_out_games)
    backend = replace(
        backend,
        micro_batch_tokens=plan.micro_batch_tokens,
        gradient_checkpointing=plan.checkpointing,
    )
    return replace(setup, backend=backend, recipe=recipe, model=model)


def describe_free(peak: float) -> str:
    """How much of this machine's memory is free, and what to do where a peak is more."""
    free_bytes = free_memory()
    text = f"{free_bytes / GB:.1f} of this machine's {measure_memory() / GB:.1f} GB are free"
    if peak > free_bytes:
        text += (
            f", but {peak / GB:.1f} are planned, so it would swap: close other programs, or lower "
            "rollout.games_at_once, model.games_at_once and backend.micro_batch_tokens"
        )
    return text


def plan_memory(setup: Experiment, device_kind: DeviceKind, precision: str) -> Plan:
    """The plan of an experiment. Raises ConfigError when the model's config cannot be found."""
    sizes, lora = find_sizes(setup.model)
    backend: Any = setup.backend
    games, val_games = _count_games(setup, sizes.parameters)
    plan = Plan(
        sizes=sizes,
        device_kind=device_kind,
        half=precision != "fp32",
        lora=lora,
        quantized=setup.model.quantize is not None,
        muon=setup.optim.name == "muon",
        has_reference=setup.recipe.algorithm.needs.reference,
        longest=_measure_game(setup),
        games=games,
        group=setup.recipe.rollout.num_generations,
        held_out_games=val_games,
        beams=setup.recipe.sampling.beams,
        micro_batch_tokens=backend.tokens_asked,
        checkpointing=backend.gradient_checkpointing,
    )
    if setup.reference is None:
        return plan
    ref_sizes, adapter = find_sizes(setup.reference)
    adapter = adapter or LoraSettings(targets=[])  # so that no weight of it is trained
    ref_plan = replace(plan, sizes=ref_sizes, lora=adapter, quantized=False, has_reference=False)
    return replace(plan, reference=ref_plan.always - ref_plan.parts["optimiser"])


def _count_games(setup: Experiment, parameters: int) -> tuple[int, int]:
    """The most games that a process plays at once, in training and in validation and reports."""
    recipe, rollout, trainer = setup.recipe, setup.recipe.rollout, setup.trainer
    size, processes = rollout.num_generations, setup.backend.processes
    games = rollout.groups // processes * size
    scripted = recipe.teacher is not None and recipe.teacher.guessable is None
    if scripted or recipe.dialogues is not None:
        games = 0
    elif rollout.games_at_once is not None:
        games = min(games, rollout.games_at_once // size * size)
    counts = [len(setup.validation) * trainer.validation_samples]
    if trainer.report:
        counts.append(len(setup.test[: choose_report_limit(trainer.report_limit, parameters)]))
    if trainer.watch_every:
        counts.append(len(setup.test))
    return games, min(setup.model.games_at_once, -(-max(counts) // processes))


def _measure_game(setup: Experiment) -> int:
    """Tokens of the longest game, each of whose answers has all that it may, or of a dialogue."""
    recipe, turns, answer = setup.recipe, setup.recipe.rules.most_answers, setup.recipe.sampling
    style, form = recipe.style, recipe.rollout.form
    clues = tuple(Clue(guess, code) for guess, code in _GUESSES[: recipe.rules.max_turns - 1])
    last_state = State(clues, len(clues))
    opening = [style.system + style.opening(State())]
    if form == "tool":
        opening.append(str(TOOL))
    if form == "fresh":  # each answer has a whole prompt before it
        return _count_tokens([*opening, style.opening(last_state)]) + answer.max_tokens
    replies = [style.feedback(turn, state) for turn, state in earlier_turns(last_state)]
    replies += replies[-1:] * (turns - 1 - len(replies))  # of retries
    length = _count_tokens(opening + replies) + turns * answer.max_tokens
    for row in recipe.dialogues or ():
        length = max(length, row.bytes // 3 + (2 + 2 * len(row.exchanges)) * _TEMPLATE)
    return min(length, setup.model.max_context)


def _count_tokens(messages: list[str]) -> int:
    """Before a tokenizer is loaded. Real ones make longer tokens of English, shorter of clues."""
    return sum(-(-len(message) // 3) + 2 * _TEMPLATE for message in messages)


def free_memory() -> int:
    """Bytes of this machine's memory that no program uses."""
    return min(psutil.virtual_memory().available, measure_memory())


def measure_memory() -> int:
    """Bytes of this machine's memory, or of its container's if that has a limit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    names = ("memory.max", "memory/memory.limit_in_bytes")  # of both versions of cgroups
    files = [file for name in names if (file := Path("/sys/fs/cgroup", name)).is_file()]
    limits = [int(text) for file in files if (text := file.read_text().strip()).isdecimal()]
    return min(memory, *limits) if limits else memory
