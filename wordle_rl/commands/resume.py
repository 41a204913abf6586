"""Continues from an earlier run: what is taken over, what must stay, what its record forbids."""

import copy
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from wordle_rl.policy.optim import Optim
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.runs.checkpoints import MANIFEST, CheckpointStore, step_of
from wordle_rl.runs.config import CONFIG, find_start, read_config
from wordle_rl.runs.files import file_digest
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, check_choice
from wordle_rl.training.lineage import base_of, is_clean, prompt_name, stages_of
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits

# A resumed run cannot change these: what it trains, which samples wait, and where its folder is.
# The model under its adapter may have another path.
_FIXED_KEYS = (
    *("model", "words", "data", "prompt", "rollout.form", "trainer.lag", "name", "output_dir"),
    *("init_from", "init_checkpoint", "algorithm.reference"),
)
_GROUPS = ("model", "backend", "prompt", "words")  # in every saved config


def read_saved_config(folder: RunFolder) -> DictConfig:
    """Read the config that a run was started with. Raises ConfigError or FolderError."""
    path = folder.path / CONFIG
    try:
        config = OmegaConf.create(read_config(folder.path))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: cannot be read as YAML ({error})") from None
    for part in _GROUPS:
        if not isinstance(config.get(part), DictConfig):
            raise ConfigError(f"{path}: {part} must be a group of settings")
    OmegaConf.set_struct(config, True)
    return config


def adopt(cfg: DictConfig, saved: DictConfig, node: str, given: Iterable[str]) -> None:
    """Replace a part of the config by the run's, unless the command line chose another one.

    given: keys of the command line, whose single values stay.
    """
    if node in given:
        return
    values = {key: OmegaConf.select(cfg, key) for key in given if key.startswith(f"{node}.")}
    OmegaConf.update(cfg, node, saved[node], merge=False, force_add=True)
    for key, value in values.items():
        OmegaConf.update(cfg, key, value, force_add=True)


def list_keys(overrides: Iterable[str]) -> set[str]:
    """The keys that overrides set."""
    return {override.partition("=")[0].lstrip("+~") for override in overrides}


# -- init_from ------------------------------------------------------------------------------------


def begin_from(cfg: DictConfig) -> dict[str, Any] | None:
    """What the manifest records about the start from another run, None without init_from.

    Its settings are in the config already. Raises ValueError.
    """
    if cfg.init_from is None:
        check_choice("init_checkpoint", cfg.init_checkpoint, ("best", "last", "start"))
        if cfg.init_checkpoint != "best":
            raise ConfigError("init_checkpoint needs init_from=<its run>")
        return None
    folder, start = find_start(str(cfg.init_from), cfg.init_checkpoint, str(cfg.output_dir))
    cfg.init_from = str(folder.path)
    # An experiment that is chosen for this run may have a model of its own in mind.
    cfg.model.path = str(start / "model")
    OmegaConf.update(cfg, "model.shape", {}, merge=False, force_add=True)
    return {
        "run": str(folder.path),
        "checkpoint": cfg.init_checkpoint,
        "step": step_of(start),
        "sha256": file_digest(start / MANIFEST),
    }


# -- resume ---------------------------------------------------------------------------------------


def count_steps(folder: RunFolder, steps: int) -> int:
    """The steps that a run has done; prints a line if there is no checkpoint, or no step left.

    Raises ConfigError if they are more than `steps`, and for a run that has lost its checkpoints.
    """
    store = CheckpointStore(folder.checkpoints, read_only=True)
    if (checkpoint := store.latest()) is None:
        if any(record["step"] for record in folder.log("metrics").records()):
            raise ConfigError(f"{store.folder} holds no checkpoint any more: start a new run")
        print("there is no checkpoint: the run starts over from step 0", flush=True)
        return 0
    count = step_of(checkpoint)
    if steps < count:
        raise ConfigError(
            f"trainer.steps must be {count} or more, because {count} are done, not {steps}"
        )
    if steps == count:
        print(f"nothing left to train: all {count} steps are done", flush=True)
    return count


def describe_rates(optim: Optim, done: int, before: int, steps: int) -> str | None:
    """A line about how another number of steps changes the learning rate; None if it does not.

    before: the steps that the run was to have. steps: those that it has now.
    """
    old, new = (optim.lr_at(max(done - 1, 0), count) for count in (before, steps))
    if not done or old == new:
        return None
    return (
        f"learning rate: {old:.3g} at step {done} of {before}, {optim.lr_at(done, steps):.3g} at "
        f"step {done + 1} of {steps}, because optim.schedule={optim.schedule} follows trainer.steps"
    )


def build_resumed_config(
    folder: RunFolder, overrides: Sequence[str]
) -> tuple[DictConfig, dict[str, Any]]:
    """The saved config with single values replaced, and a record of the changes."""
    config = read_saved_config(folder)
    changes = {}
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")  # + where the demo lacks the setting
        old, tip = OmegaConf.select(config, key), f"or start a new run with init_from={folder.path}"
        moved = key == "model.path" and _is_same_base(folder, value)
        if not moved and (key in _FIXED_KEYS or key.partition(".")[0] in _FIXED_KEYS):
            raise ConfigError(f"{override}: a resumed run keeps {', '.join(_FIXED_KEYS)}; {tip}")
        epochs = OmegaConf.select(config, "trainer.epochs")
        if key == "trainer.steps" and epochs is not None:
            follow = f"the steps of this run follow from trainer.epochs={epochs}"
            raise ConfigError(f"{override}: {follow}")
        if (old is None and "." not in key) or isinstance(old, DictConfig):
            raise ConfigError(
                f"{override}: in a resumed run only single values can be changed, such as "
                f"trainer.steps=200; {tip}"
            )
        try:
            new = OmegaConf.from_dotlist([f"x={value}"]).x
            OmegaConf.update(config, key, new)
        except (OmegaConfBaseException, YAMLError) as error:
            raise ConfigError(f"{override}: {error}") from None
        changes[key] = OmegaConf.to_container(OmegaConf.create([old, new]))
    return config, changes


def _is_same_base(folder: RunFolder, path: str) -> bool:
    """Whether a folder has the model under a run's adapter, which may have been moved there."""
    from wordle_rl.backends.bases import describe_base

    checkpoint = CheckpointStore(folder.checkpoints, read_only=True).latest()
    digest = base_of(checkpoint / "model").get("digest") if checkpoint else None
    here = digest is not None and (Path(path) / "config.json").is_file()
    return here and describe_base(path).get("digest") == digest


def keep_computing(folder: RunFolder, saved: DictConfig, changes: dict[str, Any]) -> DictConfig:
    """Replace auto by the precision and threads that the run chose at first, on any machine."""
    config = copy.deepcopy(saved)
    for key in ("precision", "threads"):
        value = folder.computing().get(key)
        if config.backend.get(key) == "auto" and f"backend.{key}" not in changes and value:
            print(f"{key} {value}, as before; backend.{key}=auto chooses again", flush=True)
            config.backend[key] = value
    return config


# -- the record of a model, which is named by its hub name or folder ------------------------------


def check_secrets(protocol: str, words: WordLists, splits: Splits, model: str) -> None:
    """Raise ConfigError if a run that made the model may have trained on held-out secrets.

    The stages of an embedded model are like pretraining, and may have had other word lists.
    """
    if protocol == "all":
        return
    for stage in stages_of(model):
        if "embedded" in stage and stage.get("digests", {}).get("words") != words.digest:
            continue
        if not is_clean(stage, words, splits):
            raise ConfigError(
                f"the model {model} comes from the run {stage['run']}, which may have trained on "
                "secrets that are now held out: use its words.protocol, words.test and words.val "
                f"(it held out {stage.get('held_out', 'no')} secrets), or words.protocol=all"
            )


def record_reference(model: str) -> dict[str, Any]:
    """What a run records of its reference. model: a hub name, or a folder, whose name it keeps."""
    folder, digest = Path(model), None
    if folder.is_dir():
        files = sorted(f for f in folder.iterdir() if f.suffix in (".safetensors", ".bin", ".json"))
        digest = hashlib.sha256("".join(map(file_digest, files)).encode()).hexdigest()
        model = folder.parent.name if folder.name == "model" else folder.name  # of a run
    return {"name": model, "sha256": digest, "stages": stages_of(folder)}


def check_match(model: str, style: PromptStyle, form: tuple[str, str], words: WordLists) -> None:
    """Raise ConfigError if the run that made a model had another prompt, form or word lists.

    An embedded model is a start for any of them. form: the key of the setting, and its value.
    """
    stages = stages_of(model)
    if not stages or "embedded" in stages[-1]:
        return
    stage = stages[-1]
    for name, new, old in (
        ("prompt", prompt_name(style), stage.get("prompt")),
        (*form, stage.get("form")),
        ("words", words.digest, stage.get("digests", {}).get("words")),
    ):
        if old not in (None, new):
            setting, record = f"{name}={new}", f"{name}={old}"
            if name == "words":
                setting, record = name, "other word lists"
            elif name == "prompt" and "prompt.think" not in old:
                record += " prompt.think=false"
            raise ConfigError(
                f"{setting}: the run {stage['run']}, which made the model {model}, had {record}; "
                "choose the same, or allow it with allow_mismatch=true"
            )


def describe_untaught_prompt(model: str, style: PromptStyle) -> str | None:
    """A warning about an embedded model that was taught another prompt; else None."""
    stage = (stages_of(model) or [{}])[-1]
    new, old = prompt_name(style), stage.get("prompt")
    if "embedded" not in stage or old in (None, new):
        return None
    return (
        f"warning: the model {stage['embedded']} was taught prompt={old} alone, and cannot "
        f"be expected to win with prompt={new}"
    )
