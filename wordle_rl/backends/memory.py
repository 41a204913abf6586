"""What a run holds in memory, and what fits. Planned by arithmetic before a model is loaded.

All sizes are in bytes, and a GB is 10**9 bytes. A run plays, then learns, and each phase frees what
it needed. So the peak is what a run always holds plus the larger phase. The sums follow what
transformers' layers keep for the backward pass. They were within 15 % of a count of every tensor.
"""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from wordle_rl.backends.sizes import Sizes, find_sizes, is_large
from wordle_rl.game.rules import Clue, State
from wordle_rl.policy.batch import LOGITS_BYTES
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.prompts.parser import TOOL
from wordle_rl.rollouts.forms import earlier_turns
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.validation import choose_report_limit
from wordle_rl.training.work import plan_work

DeviceKind = Literal["cpu", "cuda", "mps", "mlx"]

GB = 1e9  # bytes
_FULL, _HALF = 4, 2  # bytes of a number in fp32, and in bf16 or fp16
_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes of a weight in 4 bits, with its scales
_GROWTH = 17 / 16  # keys and values grow by up to an eighth at once
_TEMPLATE = 8  # tokens that a chat template writes around a message
_CALL = '<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'
# What fit() changes: the setting, and how the table says it.
CHOSEN = {
    "games": ("rollout.games_at_once", "{:,} games"),
    "held_out_games": ("model.games_at_once", "{:,} outside training"),
    "micro_batch_tokens": ("backend.micro_batch_tokens", "{:,} tokens"),
    "checkpointing": ("backend.gradient_checkpointing", "checkpointing"),
}
_FULLEST = 65_536  # tokens, the most that auto gives a micro-batch
# Guesses whose clues fill the prompts of prompt=state.
_GUESSES = (("slate", 83), ("crony", 27), ("humid", 9), ("plumb", 36), ("vague", 54), ("wharf", 1))


class GameSize(NamedTuple):
    """Tokens of the longest game."""

    opening: int  # up to the first answer
    whole: int  # of all prompts and answers that one row holds at once
    trained: int  # sampled tokens in a sequence that is trained


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
    needs_entropy: bool = False
    game: GameSize  # in training
    longest: int  # tokens of a whole game, as validation plays it
    games: int  # at once in training, 0 where a teacher plays
    group: int = 1  # games that always play together
    held_out_games: int  # at once in validation and reports
    beams: int = 1  # answers that each of these follows
    sequences: int = 1_000_000  # that a step learns from
    alike: int = 0  # of them that begin with one prompt, 0 where all do
    micro_batch_tokens: int
    checkpointing: bool = False
    work: dict[str, str] = field(default_factory=dict)  # what a run plays, for the table

    @property
    def size(self) -> int:
        """Of a number that the model computes with."""
        return _HALF if self.half else _FULL

    @property
    def parameters(self) -> int:
        """How many weights there are. MLX loads the text part alone."""
        return self.sizes.parameters + (0 if self.device_kind == "mlx" else self.sizes.pictures)

    @property
    def _adapted(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each matrix of a layer that an adapter changes."""
        targets = [] if self.lora is None else self.lora.targets
        if isinstance(targets, list):
            targets = "|".join(rf".*\.{target}" for target in targets)
        pattern = targets.replace("all-linear", ".*")
        named = {f"model.layers.0.{name}": size for name, size in self.sizes.matrices.items()}
        return [size for name, size in named.items() if re.fullmatch(pattern, name)]

    @property
    def _is_fast(self) -> bool:
        """Whether layers written out play, and learn sequences that are not too long."""
        return self.device_kind == "cpu" and self.sizes.fast and not self.quantized

    @property
    def trained(self) -> int:
        """How many numbers are trained."""
        if self.lora is None:
            return self.sizes.parameters
        return self.lora.rank * self.sizes.layers * sum(map(sum, self._adapted))

    @property
    def parts(self) -> dict[str, float]:
        """What the run always holds."""
        sizes, lora = self.sizes, self.lora
        in_layers = sizes.weights_in_layers
        rounded = in_layers if self.quantized else 0
        weights = (self.parameters - rounded) * self.size + rounded * _NF4
        if self.device_kind == "mlx" and sizes.bits:
            weights = self.parameters * sizes.bits / 8
        elif self.half and lora is None:
            weights += _FULL * self.parameters  # the trained ones, which the others are rounded of
        adapters = _FULL * self.trained if lora else 0
        sums = 0  # of base and adapter, through which LoRA computes on a CPU
        if self.device_kind == "cpu" and sizes.known and not self.quantized:
            sums = self.size * sizes.layers * sum(i * o for i, o in self._adapted)
        reference = self.reference or (adapters if lora else self.parameters * self.size)
        with_muon = 0
        if self.muon:
            with_muon = self.trained if lora else in_layers
        return {
            "weights": weights,
            "adapters": adapters,
            "sums with the base": sums,
            "reference": reference if self.has_reference else 0,
            "optimiser": _FULL * (2 * self.trained - with_muon),  # Muon keeps one moment
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

    def while_playing(self, games: int) -> float:
        """The peak with so many games at once."""
        sizes, mlx = self.sizes, self.device_kind == "mlx"
        # MLX copies a layer that grows; torch repeats a layer's keys and values for all heads.
        own, kv = sizes.heads, sizes.kv_heads
        heads = kv if own == kv else own * _GROWTH
        if mlx:
            heads = 2 * kv
        layer = heads * 2 * games * self.longest * sizes.head_dim * self.size
        logits = games * sizes.vocabulary * _FULL * (3 if mlx else 4)  # with copies, of one token
        return self.always + self.keys_values(games) + max(layer, logits)

    @property
    def peak_playing(self) -> float:
        return self.while_playing(max(self.games, self.held_out_games * self.beams))

    def _count_prompts(self, rows: int) -> int:
        """Openings that the layers compute for so many games."""
        if self.device_kind == "mlx" or not self.sizes.known:
            return rows
        return -(-rows // self.alike) if self.alike else 1

    def _count_tokens(self, rows: int) -> int:
        """Tokens that the layers compute for so many games."""
        own = self.game.whole - self.game.opening
        return rows * own + self._count_prompts(rows) * self.game.opening

    @property
    def rows(self) -> int:
        """Games in the fullest micro-batch, some of them a little shorter than the longest."""
        most = min(self.sequences, self.micro_batch_tokens)
        return bisect_left(range(1, most), self.micro_batch_tokens, key=self._count_tokens) + 1

    @property
    def _tokens(self) -> int:
        """Tokens of the fullest micro-batch that the layers compute."""
        most = max(self.micro_batch_tokens, self.game.whole)
        return min(most, self._count_tokens(self.sequences))

    @property
    def shared(self) -> int:
        """Tokens of the fullest micro-batch that stand there again, and are computed once."""
        return self.rows * self.game.whole - self._count_tokens(self.rows)

    @property
    def _layer(self) -> float:
        """What one layer keeps of a token for its backward pass."""
        sizes, size = self.sizes, self.size
        attention = size * 4 * sizes.heads * sizes.head_dim  # queries, keys, values, the output
        norms = _FULL * sizes.norms * sizes.hidden  # their inputs in fp32
        kept = norms + attention + size * 3 * sizes.inner  # and the gate
        if self.lora is None:
            return kept + size * (4 * sizes.hidden + sizes.inner)
        # An adapter keeps its input, in fp32 if the model computes in bf16.
        inputs = sum(inputs for inputs, _ in self._adapted)
        return kept + _FULL * (inputs + self.lora.rank * len(self._adapted))

    @property
    def activations(self) -> float:
        """What a micro-batch keeps for the backward pass."""
        hidden, tokens = self.sizes.hidden, self._tokens
        each = tokens * self.size * hidden if self.checkpointing else tokens * self._layer
        return each * self.sizes.layers + tokens * _FULL * hidden

    @property
    def logits_learning(self) -> float:
        """Logits of trained tokens, in parts, and what is made of them for the gradient."""
        rows, game = self.rows, self.game
        own = self._tokens - self._count_prompts(rows) * game.opening
        tokens = max(min(rows * game.trained, own), rows)
        at_once = min(tokens * self.sizes.vocabulary * _FULL, LOGITS_BYTES)
        return at_once * ((3 if self.device_kind == "mlx" else 4) + self.needs_entropy)

    @property
    def peak_learning(self) -> float:
        again = self._tokens * self._layer if self.checkpointing else 0
        part = self.activations + max(self.logits_learning, again)
        # New weights beside the old.
        step = 0 if self.device_kind == "cpu" else _FULL * self.trained
        return self.always + self.gradients + max(part, step)

    @property
    def peak(self) -> float:
        return max(self.peak_playing, self.peak_learning)

    def find_games(self, limit: float) -> int:
        """The most games at once that fit into this many bytes."""
        fixed = self.while_playing(0)
        return max(int((limit - fixed) / (self.while_playing(1) - fixed)), 0)

    def find_tokens(self, limit: float) -> int:
        """The most tokens at once that fit: all, half, a quarter, ... 0 if one game does not."""
        most = self.micro_batch_tokens
        while replace(self, micro_batch_tokens=most).peak_learning > limit:
            if most <= self.game.whole:  # a longer game is a micro-batch of its own
                return 0
            most //= 2
        return most

    def fit(self, limit: float) -> Plan | None:
        """A plan that fits into this many bytes and changes no game; None if there is none.

        That is fewer games at once, smaller micro-batches, and layers that are computed again.
        """
        most = self.find_games(limit)
        games = min(self.games, most // self.group * self.group)
        held_out = min(self.held_out_games, most // self.beams)
        for lean in (self, replace(self, checkpointing=True)):
            tokens = lean.find_tokens(limit)
            if tokens and held_out and (games or not self.games):
                more = {"games": games, "held_out_games": held_out}
                return replace(lean, micro_batch_tokens=tokens, **more)
        return None

    def changes(self, fitted: Plan) -> dict[str, Any]:
        """What fit() changed, by field."""
        now = vars(fitted)
        return {name: now[name] for name in CHOSEN if now[name] != vars(self)[name]}


def usable(memory: float, device_kind: DeviceKind) -> float:
    """Bytes of a machine's memory that a run may plan with.

    The rest is for the driver, the libraries and the gaps between blocks. macOS lets a GPU use two
    thirds of the memory, or three quarters of more than 36 GB.
    """
    if device_kind in ("mlx", "mps"):
        return memory * (0.75 if memory > 36 * GB else 2 / 3)
    return memory * 0.92


def settle_memory(
    setup: Experiment, device_kind: DeviceKind, precision: str, memory: float
) -> Experiment:
    """Plan a run of a pretrained model before it is loaded. Returns it with sizes that fit.

    memory: bytes of the device for this process. Prints a few lines. Raises ConfigError in one line
    when the run cannot fit, with what takes less.
    """
    backend: Any = setup.backend
    trainer, model = setup.trainer, setup.model
    if not any(is_large(one) for one in (model, setup.reference) if one):
        return setup
    allowed = trainer.memory_limit_gb if device_kind == "cpu" else trainer.device_memory_limit_gb
    limit = min(usable(memory, device_kind), float("inf") if allowed is None else allowed * GB)
    asked = plan_memory(setup, device_kind, precision)
    if backend.micro_batch_tokens == "auto" and device_kind == "cuda":  # fewer kernels to start
        most = replace(asked, micro_batch_tokens=_FULLEST).find_tokens(limit / 2)
        asked = replace(asked, micro_batch_tokens=max(most, asked.micro_batch_tokens))
    plan = asked.fit(limit)
    if plan is None:
        raise ConfigError(
            f"model={model.name} in {precision} on {device_kind} does not fit: {limit / GB:.1f} GB "
            "may be used: choose a smaller model, num_generations, sampling.max_tokens or "
            "sampling.beams, model.lora={rank: 16} or model.quantize=4bit"
        )
    free = min(limit, usable(memory * free_memory() / measure_memory(), "cpu"))
    if device_kind != "cuda" and plan.peak > free and (leaner := asked.fit(free)):
        plan, limit = leaner, free  # other programs have the rest
    changes = asked.changes(plan)
    print(describe_plan(plan, limit))
    if changes:
        made = [f"{CHOSEN[name][0]}={str(value).lower()}" for name, value in changes.items()]
        print(f"  chosen so that it fits: {' '.join(made)}")
    if device_kind != "cuda":
        print(f"  {describe_free(plan.peak)}")
    sys.stdout.flush()
    recipe = setup.recipe
    if "games" in changes:
        recipe = replace(recipe, rollout=replace(recipe.rollout, games_at_once=plan.games))
    if "held_out_games" in changes:
        model = replace(model, games_at_once=plan.held_out_games)
    backend = replace(
        backend,
        micro_batch_tokens=plan.micro_batch_tokens,
        gradient_checkpointing=plan.checkpointing,
    )
    return replace(setup, backend=backend, recipe=recipe, model=model)


def describe_plan(plan: Plan, limit: float) -> str:
    """A plan in three lines. limit: the bytes that it was made for."""
    own = f"{plan.games} games at once in training and " if plan.games else ""
    again = ", layers computed again" if plan.checkpointing else ""
    frozen = plan.parts["reference"] / GB
    kept = f", {frozen:.2f} of them for a reference" if frozen else ""
    return (
        f"memory plan for {limit / GB:.2f} GB on {plan.device_kind}: "
        f"always {plan.always / GB:.2f} GB{kept}\n"
        f"  {plan.peak_playing / GB:.2f} GB to play {own}{plan.held_out_games} in validation\n"
        f"  {plan.peak_learning / GB:.2f} GB to learn micro-batches of "
        f"{plan.micro_batch_tokens:,} tokens or one game of {plan.game.whole:,}{again}"
    )


def describe_free(peak: float) -> str:
    """How much of this machine's memory is free, and what to do where a peak is more."""
    free = free_memory()
    told = f"{free / GB:.1f} of this machine's {measure_memory() / GB:.1f} GB are free"
    if peak > free:
        told += (
            f", but {peak / GB:.1f} are planned, so it would swap: close other programs, or lower "
            "rollout.games_at_once, model.games_at_once and backend.micro_batch_tokens"
        )
    return told


def plan_memory(setup: Experiment, device_kind: DeviceKind, precision: str) -> Plan:
    """The plan of an experiment. Raises ConfigError when the model's config cannot be found."""
    sizes, lora = find_sizes(setup.model)
    backend: Any = setup.backend
    algorithm = setup.recipe.algorithm
    training, held_out = _count_games(setup, sizes.parameters)
    rollout = setup.recipe.rollout
    apart = rollout.form == "fresh" or rollout.kind == "best_of"  # each answer is a sequence
    answers = setup.recipe.rules.most_answers if apart else 1
    work = plan_work(setup, sizes.parameters)
    plan = Plan(
        sizes=sizes,
        device_kind=device_kind,
        half=precision != "fp32",
        lora=lora,
        quantized=setup.model.quantize is not None,
        muon=setup.optim.name == "muon",
        has_reference=algorithm.needs.reference,
        needs_entropy=algorithm.needs.entropy,
        game=_measure_game(setup, training=True),
        longest=_measure_game(setup, training=False).whole,
        games=training,
        group=rollout.num_generations,
        held_out_games=held_out,
        beams=setup.recipe.sampling.beams,
        sequences=rollout.groups // backend.processes * rollout.num_generations * answers,
        alike=0 if rollout.kind == "game" else rollout.num_generations,
        micro_batch_tokens=backend.tokens_asked,
        checkpointing=backend.gradient_checkpointing,
        work={
            f"most {name} of {what}": f"{count:,}"
            for what, amount in (("a step", work.step), ("the run", work.run))
            for name, count in zip(("games", "prompts", "answer tokens"), amount, strict=True)
        },
    )
    if setup.reference is not None:
        other, adapter = find_sizes(setup.reference)
        adapter = adapter or LoraSettings(targets=[])  # so that no weight of it is trained
        held = replace(plan, sizes=other, lora=adapter, quantized=False, has_reference=False)
        plan = replace(plan, reference=held.always - held.parts["optimiser"])
    return plan


def _count_games(setup: Experiment, parameters: int) -> tuple[int, int]:
    """The most games that a process plays at once, in training and in validation and reports."""
    recipe, rollout, trainer = setup.recipe, setup.recipe.rollout, setup.trainer
    size, most = rollout.num_generations, rollout.games_at_once
    games = rollout.groups // setup.backend.processes * size
    scripted = recipe.teacher is not None and recipe.teacher.guessable is None
    if scripted or recipe.dialogues is not None:
        games = 0
    elif most is not None:
        games = min(games, most // size * size)
    counts = [len(setup.validation) * trainer.validation_samples]
    if trainer.report:
        counts.append(len(setup.test[: choose_report_limit(trainer.report_limit, parameters)]))
    if trainer.watch_every:
        counts.append(len(setup.test))
    return games, min(setup.model.games_at_once, -(-max(counts) // setup.backend.processes))


def _measure_game(setup: Experiment, *, training: bool) -> GameSize:
    """Tokens of the longest game, each of whose answers takes all the tokens it may have.

    training: whether it is one that is learned, and not one of validation.
    """
    recipe, room = setup.recipe, setup.model.max_context
    rules, rollout, style = recipe.rules, recipe.rollout, recipe.style
    answer, given, turns, trained = recipe.sampling.max_tokens, 0, rules.most_answers, 1
    if training and (dialogues := recipe.dialogues) is not None:
        rows = [dialogues[i] for i in range(len(dialogues))]
        whole = max(row.bytes // 3 + (2 + 2 * len(row.exchanges)) * _TEMPLATE for row in rows)
        return GameSize(1, min(whole, room), min(whole, room))
    if training:
        given = setup.most_earlier_guesses
        turns = turns if rollout.finishes else given + 1
        trained = min(rollout.answers(rules, 0), turns - given)
        if recipe.teacher is not None and recipe.teacher.reasoning is None:
            answer = min(answer, _count_tokens(_CALL))
    clues = tuple(Clue(guess, code) for guess, code in _GUESSES[: rules.max_turns - 1])
    last = State(clues, len(clues))
    opening = _count_tokens(style.system + style.opening(State())) + _TEMPLATE
    if rollout.form == "tool":
        opening += _count_tokens(str(TOOL))
    if rollout.form == "fresh":  # each answer has a whole prompt before it
        opening += _count_tokens(style.opening(last)) if turns > 1 else 0
        whole, trained = opening + answer, 1
    else:
        replies = [
            _count_tokens(style.feedback(turn, after)) + _TEMPLATE
            for turn, after in earlier_turns(last)
        ]
        replies += replies[-1:] * (turns - 1 - len(replies))  # of retries
        opening += sum(replies[:given]) + given * _count_tokens(_CALL)
        whole = opening + sum(replies[given : turns - 1]) + (turns - given) * answer
    return GameSize(min(opening, room), min(whole, room), min(trained * answer, room))


def _count_tokens(message: str) -> int:
    """Before a tokenizer is loaded. Real ones make longer tokens of English, shorter of clues."""
    return -(-len(message) // 3) + _TEMPLATE


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
