"""The memory of an experiment: its plan, and what is settled before a model is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from wordle_rl.backends.adapters import (
    find_base_name,
    is_adapter,
    read_adapter_config,
    read_adapter_form,
)
from wordle_rl.backends.loading import explain_load_errors, notice_offline
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Clue, PlayedTurn, State, TurnKind
from wordle_rl.policy.memory import (
    DEFAULT_MICRO_BATCH,
    GB,
    KNOWN,
    LEAST_MICRO_BATCH,
    GameSize,
    Place,
    Plan,
    Sizes,
    read_sizes,
    usable,
)
from wordle_rl.policy.settings import MAIN, UNTRAINED, LoraSettings, ModelSettings, locate
from wordle_rl.prompts.parser import TOOL
from wordle_rl.rollouts.given import GivenDialogue, Rows
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.report import choose_report_limit

_LARGE = 50_000_000  # bytes of weights
# Sizes of two caches of prepared matrix products: oneDNN has one, torch has another above it. Both
# sizes are read at the first operation.
_CACHE_SIZES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "32"}
# Texts are counted before a tokenizer is loaded. Tokenizers of real models make longer tokens of
# plain English, and shorter ones of clues.
_CHARACTERS_PER_TOKEN = 3
_TEMPLATE = 8  # tokens that a chat template writes around a message
_CALL = '<tool_call>{"name": "guess", "arguments": {"word": "crane"}}</tool_call>'
# Guesses whose clues fill the prompts of prompt=state.
_GUESSES = (("slate", 83), ("crony", 27), ("humid", 9), ("plumb", 36), ("vague", 54), ("wharf", 1))


def settle_memory(setup: Experiment, place: Place, precision: str, memory: float) -> Experiment:
    """Plan a run before its model is loaded. Returns it with numbers in place of auto.

    memory: bytes of the device for this process. Prints a few lines for a pretrained model. Raises
    ConfigError in one line when the run cannot fit, with the setting that is too large.
    """
    backend: Any = setup.backend
    recipe, rollout = setup.recipe, setup.recipe.rollout
    if not is_pretrained(setup) and "auto" not in (
        backend.micro_batch_tokens,
        rollout.games_at_once,
    ):
        return setup
    limit = _limit(setup, place, memory)
    plan = plan_memory(setup, place, precision)
    if rollout.games_at_once == "auto" and plan.games:  # a teacher's games take no memory
        size = rollout.num_generations
        plan = replace(plan, games=max(plan.find_games(limit) // size * size, size))
        recipe = replace(recipe, rollout=replace(rollout, games_at_once=plan.games))
    elif rollout.games_at_once == "auto":
        recipe = replace(recipe, rollout=replace(rollout, games_at_once=None))
    if backend.micro_batch_tokens == "auto":
        tokens = plan.find_tokens(limit) or LEAST_MICRO_BATCH
        plan = replace(plan, micro_batch_tokens=tokens)
    if is_pretrained(setup):
        print("\n".join(_describe(plan, limit)), flush=True)
    check_fit(setup, plan, limit)
    backend = replace(backend, micro_batch_tokens=plan.micro_batch_tokens)
    return replace(setup, backend=backend, recipe=recipe)


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
        game=measure_training_game(setup),
        held_out=_measure(setup, setup.recipe.sampling.max_tokens, given=0, turns=None, answers=1),
        games=_count_training_games(setup),
        held_out_games=_count_held_out_games(setup, sizes.parameters),
        micro_batch_tokens=DEFAULT_MICRO_BATCH if tokens == "auto" else tokens,
        checkpointing=backend.gradient_checkpointing,
    )


def find_sizes(settings: ModelSettings) -> tuple[Sizes, LoraSettings | None]:
    """The sizes of a model, and its adapter. Reads config.json and no weights.

    Uses the network only for a hub model that is not in KNOWN. Raises ConfigError in one line when
    there is no config.
    """
    if settings.path == UNTRAINED:
        return _read_untrained(settings.shape), settings.lora
    base, revision, lora = settings.location, settings.revision, settings.lora
    if is_adapter(Path(base)):
        folder = Path(base)
        lora, revision = _read_lora(folder), read_adapter_config(folder).get("revision") or MAIN
        base = locate(find_base_name(folder, read_adapter_form(folder)))
    if base in KNOWN and not Path(base).is_dir():
        return KNOWN[base], lora
    from transformers import AutoConfig

    notice_offline(base)
    with explain_load_errors(base, on_disk=Path(base).is_dir()):
        found = AutoConfig.from_pretrained(base, revision=revision, trust_remote_code=False)
        return read_sizes(found), lora


def _read_untrained(shape: dict[str, Any]) -> Sizes:
    from wordle_rl.backends.tiny_model import build_tokenizer

    return Sizes(
        len(build_tokenizer(shape.get("vocabulary", "letters"))),
        shape["hidden_size"], shape["intermediate_size"], shape["layers"], shape["heads"],
        shape["kv_heads"], shape["hidden_size"] // shape["heads"],
    )  # fmt: skip


def _read_lora(folder: Path) -> LoraSettings:
    """The adapter in a folder, in either form."""
    config = read_adapter_config(folder)
    if "r" in config:
        return LoraSettings(
            rank=config["r"], alpha=config["lora_alpha"], targets=config["target_modules"]
        )
    inner = config["lora_parameters"]
    keys = [key.rpartition(".")[2] for key in inner["keys"]]
    return LoraSettings(rank=inner["rank"], alpha=inner["scale"] * inner["rank"], targets=keys)


def _count_training_games(setup: Experiment) -> int:
    """The most games that the model of a process plays side by side in training."""
    recipe = setup.recipe
    if recipe.teacher is not None or recipe.dialogues is not None:
        return 0
    rollout = recipe.rollout
    games = rollout.groups // setup.backend.processes * rollout.num_generations
    if not isinstance(rollout.games_at_once, int):
        return games
    return min(games, rollout.games_at_once // rollout.num_generations * rollout.num_generations)


def _count_held_out_games(setup: Experiment, parameters: int) -> int:
    """The most games that a process plays side by side in validation and reports."""
    trainer = setup.trainer
    counts = [len(setup.validation) * trainer.validation_samples]
    if trainer.report:
        limit = choose_report_limit(trainer.report_limit, parameters)
        counts.append(len(setup.test[:limit]))
    if trainer.watch_every:
        counts.append(len(setup.test))
    return min(setup.model.games_at_once, -(-max(counts) // setup.backend.processes))


def measure_training_game(setup: Experiment) -> GameSize:
    """Tokens of the longest game that is learned, and played in training."""
    recipe = setup.recipe
    if recipe.dialogues is not None:
        whole = min(_measure_dialogues(recipe.dialogues), setup.model.max_context)
        return GameSize(opening=1, feed=1, whole=whole, trained=whole)
    given = max((h.most for h in (recipe.history, recipe.states) if h), default=0)
    rollout, answer = recipe.rollout, recipe.sampling.max_tokens
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


def _measure_dialogues(dialogues: Rows[GivenDialogue]) -> int:
    """Tokens of the longest dialogue of a file."""
    rows = (dialogues[place] for place in range(len(dialogues)))
    return max(
        -(-row.bytes // _CHARACTERS_PER_TOKEN) + (1 + 2 * len(row.exchanges)) * _TEMPLATE
        for row in rows
    )


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


def limit_product_caches(setup: Experiment, device: str) -> None:
    """Let oneDNN and torch keep few prepared matrix products for a pretrained model on the CPU.

    Call this before the first operation. A product is prepared for one size of matrices, with
    memory of its own, and sizes differ from batch to batch. Each cache keeps 1,024 of them, which
    takes gigabytes with SmolLM2. Small models are faster with that default.
    """
    if device == "cpu" and is_pretrained(setup):
        for variable, size in _CACHE_SIZES.items():
            os.environ.setdefault(variable, size)


def _limit(setup: Experiment, place: Place, memory: float) -> float:
    """Bytes that the run may use: what the device offers, or trainer= allows if that is less."""
    trainer = setup.trainer
    allowed = trainer.memory_limit_gb if place == "cpu" else trainer.device_memory_limit_gb
    limit = usable(memory, place)
    return limit if allowed is None else min(limit, allowed * GB)


def is_pretrained(setup: Experiment) -> bool:
    """Whether a run begins with a model of a real size, and not with one of the project's own."""
    return setup.model.path != UNTRAINED and _is_large(setup.model.location)


def _is_large(location: str) -> bool:
    """Whether a model, or the one under an adapter, is too large to be one of the project's own."""
    folder = Path(location)
    if not folder.is_dir():
        return True  # of the hub
    if is_adapter(folder):
        described = read_adapter_config(folder)
        base = described.get("base_model_name_or_path") or described.get("model")
        return base is not None and _is_large(locate(str(base)))
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return sum(file.stat().st_size for file in files) >= _LARGE


def _describe(plan: Plan, limit: float) -> list[str]:
    """A plan in a few lines. limit: bytes that may be used."""
    always = plan.always
    own = f"{plan.games} games at once in training and " if plan.games else ""
    others = f"{plan.held_out_games} outside it" if own else f"{plan.held_out_games} in validation"
    activations = plan.activations(checkpointing=plan.checkpointing)
    again = ", layers computed again" if plan.checkpointing else ""
    sums = ", their sums with the base" if plan.sums else ""
    return [
        f"memory plan: {_show(plan.total)} GB of tensors at the most, of {_show(limit)} GB that "
        f"may be used on {plan.place}",
        f"  always: {_show(always)} GB (weights {_show(plan.weights)}, adapters{sums}, "
        f"moments and reference {_show(always - plan.weights)})",
        f"  playing: {_show(plan.while_playing - always)} GB more, for {own}{others}",
        f"  learning: {_show(plan.while_learning() - always)} GB more, for micro-batches of "
        f"{plan.micro_batch_tokens:,} tokens or one game of {plan.game.whole:,} (activations "
        f"{_show(activations)}, logits {_show(plan.logits_learning)}{again})",
    ]


def _show(size: float) -> str:
    """Bytes as GB."""
    return f"{size / GB:.1f}" if size >= GB else f"{size / GB:.2f}"


def check_fit(setup: Experiment, plan: Plan, limit: float) -> None:
    """Raise ConfigError, with the setting that is too large, unless a plan fits into a limit."""
    have = f"the {limit / GB:.1f} GB that may be used"
    model, rollout = setup.model, setup.recipe.rollout
    if plan.while_held_out(1) > limit:
        raise ConfigError(
            f"model={model.name} must fit into {have} with one game, not need "
            f"{plan.while_held_out(1) / GB:.1f} GB: choose a smaller model or model.lora"
        )
    if plan.while_held_out(plan.held_out_games) > limit:
        raise ConfigError(
            f"model.games_at_once must be {plan.find_held_out_games(limit)} or less to fit into "
            f"{have}, not {model.games_at_once}"
        )
    if plan.games and plan.while_training(plan.games) > limit:
        size, most = rollout.num_generations, plan.find_games(limit)
        key, most = (
            ("rollout.num_generations", str(most))
            if most < size
            else ("rollout.games_at_once", f"auto, or {most // size * size}")
        )
        raise ConfigError(
            f"{key} must be {most} or less to fit into {have}, because {plan.games} games at once "
            f"need {plan.while_training(plan.games) / GB:.1f} GB"
        )
    if plan.while_learning() <= limit:
        return
    need = f"{plan.while_learning() / GB:.1f} GB"
    if tokens := plan.find_tokens(limit, plan.micro_batch_tokens):
        raise ConfigError(
            f"backend.micro_batch_tokens must be {tokens} or less to fit into {have}, not "
            f"{plan.micro_batch_tokens}, which needs {need}"
        )
    fits = replace(plan, micro_batch_tokens=1, checkpointing=True).while_learning() <= limit
    way = "set backend.gradient_checkpointing=true" if fits else "choose a smaller model"
    raise ConfigError(
        f"model={model.name} must learn from games of up to {plan.game.whole} tokens within "
        f"{have}, not {need}: {way}, or lower sampling.max_tokens"
    )


def measure_memory() -> int:
    """Bytes of this machine's memory, or of its container's if that has a limit."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # of both versions of cgroups
        try:
            memory = min(memory, int((Path("/sys/fs/cgroup") / file).read_text()))
        except (OSError, ValueError):  # there is none, or no limit
            continue
    return memory
