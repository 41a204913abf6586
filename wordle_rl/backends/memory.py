"""What a run holds in memory, and what fits. Planned by arithmetic before a model is loaded.

All sizes are in bytes, and a GB is 10**9 bytes. A run plays, then learns, and each phase frees what
it needed. So the peak is what a run always holds plus the larger phase. The sums follow what
transformers' layers keep for the backward pass. They were within 15 % of a count of every tensor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from wordle_rl.backends.sizes import Sizes, find_sizes, is_large
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Clue, PlayedTurn, State, TurnKind
from wordle_rl.policy.batch import LOGITS_BYTES
from wordle_rl.policy.settings import LoraSettings
from wordle_rl.prompts.parser import TOOL
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.validation import choose_report_limit

GB = 1e9  # bytes
MACHINES = (16, 24, 48, 80, 141)  # GB of memory that the table compares with
DEFAULT_MICRO_BATCH = 4096  # padded tokens, where auto has no plan to choose by
_MOST_MICRO_BATCH = 16_384  # auto takes no more, since larger products are no faster
_LEAST_MICRO_BATCH = 256

Place = Literal["cpu", "cuda", "mps", "mlx"]

_FULL, _HALF = 4, 2  # bytes of a number in fp32 and in bf16
_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes of a weight in 4 bits, with its scales
_GROWTH = 17 / 16  # keys and values grow by up to an eighth at once
# Texts are counted before a tokenizer is loaded. Tokenizers of real models make longer tokens of
# plain English, and shorter ones of clues.
_CHARACTERS_PER_TOKEN = 3
_TEMPLATE = 8  # tokens that a chat template writes around a message
_CALL = '<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'
# Guesses whose clues fill the prompts of prompt=state.
_GUESSES = (("slate", 83), ("crony", 27), ("humid", 9), ("plumb", 36), ("vague", 54), ("wharf", 1))


class GameSize(NamedTuple):
    """Tokens of the longest game."""

    opening: int  # up to the first answer
    feed: int  # most tokens between two answers
    whole: int  # of all prompts and answers that one row holds at once
    trained: int  # sampled tokens in a sequence that is trained


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The memory of a run on one device. Its properties are bytes, unless they say otherwise."""

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
        """Of a number that the model computes with."""
        return _HALF if self.half else _FULL

    @property
    def parameters(self) -> int:
        """How many weights there are. MLX loads the text part alone."""
        return self.sizes.parameters + (0 if self.place == "mlx" else self.sizes.pictures)

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
        """Keys and values of so many games at their longest."""
        kept = games * self.sizes.keys_values(self.size)
        if self.place == "mlx":
            return kept * -(-game.whole // 64) * 64
        return kept * game.whole * _GROWTH

    @property
    def most_keys_values(self) -> float:
        own = self.keys_values(self.game, self.games)
        return max(own, self.keys_values(self.held_out, self.held_out_games))

    def logits_playing(self, games: int) -> float:
        """Logits of one token of each game, and their copies while a token is drawn."""
        return games * self.sizes.vocabulary * _FULL * (3 if self.place == "mlx" else 4)

    def while_playing(self, game: GameSize, games: int) -> float:
        """The peak with so many games at once."""
        sizes = self.sizes
        # MLX copies a layer that grows; torch repeats a layer's keys and values for all heads.
        own, kv = sizes.heads, sizes.kv_heads
        heads = 2 * kv if self.place == "mlx" else kv if own == kv else own * _GROWTH
        layer = heads * 2 * games * game.whole * sizes.head_dim * self.size
        fed = games * min(game.feed, 256) * (4 * sizes.hidden + 3 * sizes.inner) * self.size
        kept = self.always + self.keys_values(game, games)
        return kept + max(layer, fed, self.logits_playing(games))

    @property
    def peak_playing(self) -> float:
        return max(
            self.while_playing(self.game, self.games),
            self.while_playing(self.held_out, self.held_out_games),
        )

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

    def activations(self, *, checkpointing: bool) -> float:
        """What a micro-batch keeps for the backward pass."""
        each = self.size * self.sizes.hidden if checkpointing else self._layer
        return self._computed * (each * self.sizes.layers + _FULL * self.sizes.hidden)

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
        again = self._computed * self._layer if lean else 0
        part = self.activations(checkpointing=lean) + max(self.logits_learning, again)
        step = 0 if self.place == "cpu" else _FULL * self.trained  # new weights beside the old
        return self.always + self.gradients + max(part, step)

    def find_games(self, limit: float, *, held_out: bool = False) -> int:
        """The most games at once, in training or outside it, that fit into this many bytes."""
        game, most = (self.held_out, self.held_out_games) if held_out else (self.game, self.games)
        fixed = self.while_playing(game, 0)
        each = self.while_playing(game, 1) - fixed
        return max(min(most, int((limit - fixed) / each)), 0)

    def find_tokens(self, limit: float, most: int = _MOST_MICRO_BATCH) -> int:
        """The largest of most, most / 2, most / 4, ... padded tokens that fits, 0 if none does."""
        while most >= _LEAST_MICRO_BATCH:
            if replace(self, micro_batch_tokens=most).while_learning() <= limit:
                return most
            if most <= self.game.whole:  # a longer game is a micro-batch of its own
                return 0
            most //= 2
        return 0


def usable(memory: float, place: Place) -> float:
    """Bytes of a machine's memory that a run may plan with.

    The rest is for the driver, the libraries and the gaps between blocks. macOS lets a GPU use two
    thirds of the memory, or three quarters of more than 36 GB.
    """
    if place in ("mlx", "mps"):
        return memory * (0.75 if memory > 36 * GB else 2 / 3)
    return memory * 0.92


_ROWS: dict[str, Callable[[Plan], float]] = {  # bytes of each part
    "weights": lambda p: p.weights,
    "adapters": lambda p: p.adapters,
    "sums with the base": lambda p: p.sums,
    "reference": lambda p: p.reference,
    "optimiser": lambda p: p.optimizer,
    "gradients": lambda p: p.gradients,
    "keys and values": lambda p: p.most_keys_values,
    "logits while playing": lambda p: p.logits_playing(max(p.games, p.held_out_games)),
    "activations": lambda p: p.activations(checkpointing=False),
    "activations, checkpointing": lambda p: p.activations(checkpointing=True),
    "logits while learning": lambda p: p.logits_learning,
    "peak while playing": lambda p: p.peak_playing,
    "peak while learning": lambda p: p.while_learning(checkpointing=False),
    "the same, checkpointing": lambda p: p.while_learning(checkpointing=True),
}


def format_table(names: Sequence[str], plans: Sequence[Plan]) -> str:
    """The plans as a table in GB, each below its name."""
    rows = {
        "games at once": [f"{p.games:,}" for p in plans],
        "the same outside training": [f"{p.held_out_games:,}" for p in plans],
        "tokens of a game": [f"{p.game.whole:,}" for p in plans],
        "tokens of a micro-batch": [f"{p.micro_batch_tokens:,}" for p in plans],
        "bytes of a token's keys, values": [f"{p.sizes.keys_values(p.size):,}" for p in plans],
        **{name: [f"{part(p) / GB:.2f}" for p in plans] for name, part in _ROWS.items()},
        **{f"fits {size} GB": [fits(p, size) for p in plans] for size in MACHINES},
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(names)).to_string()


def fits(plan: Plan, size: float) -> str:
    """Whether a plan fits into a machine of so many GB, or what must change for it.

    That is gradient checkpointing, or fewer games at once.
    """
    limit = usable(size * GB, plan.place)
    training, outside = plan.find_games(limit), plan.find_games(limit, held_out=True)
    fewer = [training] * (training < plan.games) + [outside] * (outside < plan.held_out_games)
    if 0 in fewer or plan.while_learning(checkpointing=True) > limit:
        return "no"
    parts = [f"{min(fewer)} games" if fewer else "yes"]
    if plan.while_learning(checkpointing=False) > limit:
        parts.append("checkpointing")
    return ", ".join(parts)


def settle_memory(setup: Experiment, place: Place, precision: str, memory: float) -> Experiment:
    """Plan a run before its model is loaded. Returns it with numbers in place of auto.

    memory: bytes of the device for this process. Prints a few lines for a pretrained model. Raises
    ConfigError in one line when the run cannot fit, with the setting that is too large.
    """
    backend: Any = setup.backend
    recipe, rollout, trainer = setup.recipe, setup.recipe.rollout, setup.trainer
    games, tokens = rollout.games_at_once, backend.micro_batch_tokens
    large = is_large(setup.model)
    if not large and "auto" not in (games, tokens):
        return setup
    allowed = trainer.memory_limit_gb if place == "cpu" else trainer.device_memory_limit_gb
    limit = min(usable(memory, place), float("inf") if allowed is None else allowed * GB)
    plan = plan_memory(setup, place, precision)
    if games == "auto":
        size = rollout.num_generations
        games = max(plan.find_games(limit) // size * size, size) if plan.games else None
        plan = replace(plan, games=games or 0)  # a teacher's games take no memory
        recipe = replace(recipe, rollout=replace(rollout, games_at_once=games))
    if tokens == "auto":
        plan = replace(plan, micro_batch_tokens=plan.find_tokens(limit) or _LEAST_MICRO_BATCH)
    if large:
        print(_describe(plan, limit), flush=True)
    check_fit(setup, plan, limit)
    chosen = replace(backend, micro_batch_tokens=plan.micro_batch_tokens)
    return replace(setup, backend=chosen, recipe=recipe)


def plan_memory(setup: Experiment, place: Place, precision: str) -> Plan:
    """The plan of an experiment. Raises ConfigError when the model's config cannot be found."""
    sizes, lora = find_sizes(setup.model)
    backend: Any = setup.backend
    tokens, algorithm = backend.micro_batch_tokens, setup.recipe.algorithm
    return Plan(
        sizes=sizes,
        place=place,
        half=precision == "bf16",
        lora=lora,
        quantized=setup.model.quantize is not None,
        muon=setup.optim.name == "muon",
        has_reference=algorithm.needs_reference,
        needs_entropy=algorithm.needs_entropy,
        game=_measure_training_game(setup),
        held_out=_measure(setup, setup.recipe.sampling.max_tokens, given=0, turns=None, answers=1),
        games=_count_training_games(setup),
        held_out_games=_count_held_out_games(setup, sizes.parameters),
        micro_batch_tokens=DEFAULT_MICRO_BATCH if tokens == "auto" else tokens,
        checkpointing=backend.gradient_checkpointing,
    )


def _count_training_games(setup: Experiment) -> int:
    """The most games that the model of a process plays side by side in training."""
    recipe, rollout = setup.recipe, setup.recipe.rollout
    scripted = recipe.teacher is not None and recipe.teacher.on_policy is None
    if scripted or recipe.dialogues is not None:
        return 0
    size, most = rollout.num_generations, rollout.games_at_once
    games = rollout.groups // setup.backend.processes * size
    return min(games, most // size * size) if isinstance(most, int) else games


def _count_held_out_games(setup: Experiment, parameters: int) -> int:
    """The most games that a process plays side by side in validation and reports."""
    trainer = setup.trainer
    counts = [len(setup.validation) * trainer.validation_samples]
    if trainer.report:
        counts.append(len(setup.test[: choose_report_limit(trainer.report_limit, parameters)]))
    if trainer.watch_every:
        counts.append(len(setup.test))
    return min(setup.model.games_at_once, -(-max(counts) // setup.backend.processes))


def _measure_training_game(setup: Experiment) -> GameSize:
    """Tokens of the longest game that is learned, and played in training."""
    recipe, rollout = setup.recipe, setup.recipe.rollout
    if (dialogues := recipe.dialogues) is not None:
        rows = (dialogues[place] for place in range(len(dialogues)))
        most = max(
            -(-row.bytes // _CHARACTERS_PER_TOKEN) + (1 + 2 * len(row.exchanges)) * _TEMPLATE
            for row in rows
        )
        whole = min(most, setup.model.max_context)
        return GameSize(opening=1, feed=1, whole=whole, trained=whole)
    given = max((h.most for h in (recipe.history, recipe.states) if h), default=0)
    answer = recipe.sampling.max_tokens
    if recipe.teacher is not None and recipe.teacher.reasoning is None:
        answer = min(answer, _count_answer(rollout.form))
    turns = None if rollout.finishes else 1
    most = rollout.answers(recipe.rules, 0)
    return _measure(setup, answer, given=given, turns=turns, answers=most)


def _measure(
    setup: Experiment, answer: int, *, given: int, turns: int | None, answers: int
) -> GameSize:
    """Tokens of the longest game, each of whose answers takes all the tokens it may have.

    answer: tokens of each. given: most guesses that a game begins with. turns: that are played
    after them, None for all. answers: the most that one sequence trains.
    """
    recipe, rules = setup.recipe, setup.recipe.rules
    style, form = recipe.style, recipe.rollout.form
    fresh = form == "fresh"
    opening = _count_tokens(style.system + style.opening(State()), messages=2)
    if form == "tool":
        opening += _count_tokens(str(TOOL), messages=1)
    replies = [_count_reply(style, number, fresh) for number in range(1, rules.max_turns)]
    if "retry" in (rules.invalid, rules.unparsable):
        replies += [max([0, *replies])] * rules.max_retries
    if fresh:  # each answer has a whole prompt before it
        prompts = [opening, *(opening + reply for reply in replies)]
        prompt = max(prompts if turns is None else prompts[: given + 1])
        opening, feed, whole, trained = prompt, prompt, prompt + answer, answer
    else:
        opening += sum(replies[:given]) + given * _count_answer(form)
        feeds = replies[given:] if turns is None else []
        whole = opening + sum(feeds) + (len(feeds) + 1) * answer
        feed, trained = max([0, *feeds]), min(answers, len(feeds) + 1) * answer
    whole = min(whole, setup.model.max_context)
    return GameSize(min(opening, whole), min(feed, whole), whole, min(trained, whole))


def _count_answer(form: str) -> int:
    """Tokens of an answer that makes a guess and says nothing else."""
    return _count_tokens(_CALL if form == "tool" else guess_text("crane"), messages=1)


def _count_reply(style: Any, turn: int, fresh: bool) -> int:
    """Tokens between two answers: what the game says after this many guesses."""
    clues = tuple(Clue(guess, code) for guess, code in _GUESSES[:turn])
    before, after = State(clues[:-1], turn - 1), State(clues, turn)
    if fresh:
        return _count_tokens(style.opening(after), messages=0)
    played = PlayedTurn(
        state=before, text="", guess=clues[-1].guess, reason=None, kind=TurnKind.ACCEPTED,
        feedback=clues[-1].feedback,
    )  # fmt: skip
    return _count_tokens(style.feedback(played, after), messages=2)


def _count_tokens(text: str, *, messages: int) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN) + messages * _TEMPLATE


def _describe(plan: Plan, limit: float) -> str:
    """A plan in four lines. limit: bytes that may be used."""
    always, learning = plan.always, plan.while_learning()
    others = f"{plan.held_out_games} {'outside it' if plan.games else 'in validation'}"
    own = f"{plan.games} games at once in training and " if plan.games else ""
    again = ", layers computed again" if plan.checkpointing else ""
    return (
        f"memory plan: {max(plan.peak_playing, learning) / GB:.2f} GB of tensors at the most, of "
        f"{limit / GB:.2f} GB that may be used on {plan.place}\n"
        f"  always: {always / GB:.2f} GB ({plan.weights / GB:.2f} GB of them weights)\n"
        f"  playing: {(plan.peak_playing - always) / GB:.2f} GB more, for {own}{others}\n"
        f"  learning: {(learning - always) / GB:.2f} GB more, for micro-batches of "
        f"{plan.micro_batch_tokens:,} tokens or one game of {plan.game.whole:,}{again}"
    )


def check_fit(setup: Experiment, plan: Plan, limit: float) -> None:
    """Raise ConfigError, with the setting that is too large, unless a plan fits into a limit."""
    have = f"to fit into the {limit / GB:.1f} GB that may be used"
    model, size = setup.model, setup.recipe.rollout.num_generations
    if (need := plan.while_playing(plan.held_out, 1)) > limit:
        raise ConfigError(
            f"model={model.name} must need less with one game {have}, not {need / GB:.1f} GB: "
            "choose a smaller model or model.lora"
        )
    if (most := plan.find_games(limit, held_out=True)) < plan.held_out_games:
        raise ConfigError(
            f"model.games_at_once must be {most} or less {have}, not {model.games_at_once}"
        )
    if (most := plan.find_games(limit)) < plan.games:
        key, advice = "rollout.num_generations", f"{most}"
        if most >= size:
            key, advice = "rollout.games_at_once", f"auto, or {most // size * size}"
        need = plan.while_playing(plan.game, plan.games)
        raise ConfigError(
            f"{key} must be {advice} or less {have}, because {plan.games} games at once need "
            f"{need / GB:.1f} GB"
        )
    if (need := plan.while_learning()) <= limit:
        return
    if tokens := plan.find_tokens(limit, plan.micro_batch_tokens):
        raise ConfigError(
            f"backend.micro_batch_tokens must be {tokens} or less {have}, not "
            f"{plan.micro_batch_tokens}, which needs {need / GB:.1f} GB"
        )
    fits = replace(plan, micro_batch_tokens=1, checkpointing=True).while_learning() <= limit
    way = "set backend.gradient_checkpointing=true" if fits else "choose a smaller model"
    raise ConfigError(
        f"model={model.name} must learn from games of up to {plan.game.whole} tokens with less "
        f"{have}, not {need / GB:.1f} GB: {way}, or lower sampling.max_tokens"
    )


def measure_memory() -> int:
    """Bytes of this machine's memory, or of its container's if that has a limit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    names = ("memory.max", "memory/memory.limit_in_bytes")  # of both versions of cgroups
    files = [file for name in names if (file := Path("/sys/fs/cgroup", name)).is_file()]
    limits = [int(text) for file in files if (text := file.read_text().strip()).isdecimal()]
    return min(memory, *limits) if limits else memory
