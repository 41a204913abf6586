"""Composes configs from conf/, and keeps the resolved one in a run folder."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.errors import describe_hydra_error
from wordle_rl.runs.files import read_object, read_text, read_yaml, write_bytes
from wordle_rl.runs.folder import LATEST, OUTPUTS, RunFolder, find_run
from wordle_rl.runs.instantiate import NAMED, PACKAGE, ConfigError, check_choice
from wordle_rl.runs.paths import CONF, CONFIG_DIR, ROOT, quote

CONFIG = "config.yaml"  # the resolved config in a run folder
# Settings of other programs, or of Hydra, whose work this program does by another one.
_HINTS: dict[str, str | None] = {
    **dict.fromkeys(("learning_rate", "optim.learning_rate"), "optim.lr"),
    "batch_size": "rollout.groups, which num_generations multiplies",
    **dict.fromkeys(("device", "backend.device"), "backend.accelerator"),
    **dict.fromkeys(
        ("backend.accelerator=gpu", "backend.accelerator=tpu"),
        "backend.accelerator=cuda for an NVIDIA GPU, and mps for a Mac's",
    ),
    "hydra/launcher": "hydra.sweeper.jobs, as a study has workers of its own",
    "hydra.launcher": "hydra.sweeper.jobs, as a study has workers of its own",
    "hydra.run": "output_dir={}",
    "hydra.sweep": "hydra.sweeper.folder={}",
    **dict.fromkeys(("hydra.sweeper", "hydra.searchpath")),  # the only ones with an effect
    "hydra": "output_dir, name or hydra.sweeper.folder, as Hydra's own have no effect",
}
SMALL_MODELS = (
    "lexicon",
    "micro",
    "mini",
    "tiny",
    "untrained",
)  # models that began in this project
_FOR_ANY = ("study",)  # experiments for models of every kind
_PLAIN_TEXT = re.compile(r"[^\s'\"()\[\]{},\\]*")
_DEFAULT = re.compile(r'^  - (\w+): "?([\w./-]+)"?(?:  # (.*))?$', re.M)  # in a defaults list
_FOLDER = re.compile(r"(?:^|\0)(?:--config-dir|-cd)[=\0]([^\0]+)")  # among arguments
_TARGET = re.compile(r"""\b(?:_target_|player)['"]?\s*[:=]\s*['"]?(\w+(?:\.\w+)+)""")
_NAME = re.compile(r"(?!(?:null|true|false|nan|inf)$)[a-z./][\w./-]*", re.IGNORECASE | re.ASCII)
_CHOICE = re.compile(r"\w+\(")  # of a study, such as choice(mini, tiny)


def compose_config(name: str, settings: Sequence[str] = (), *, with_hydra: bool = False) -> Any:
    """The DictConfig of conf/<name>.yaml with settings as on the command line.

    with_hydra: whether it has the node hydra, too. Raises ConfigError in one line. Works in scripts
    as well as while a Hydra command runs.
    """
    from hydra import compose
    from hydra.errors import HydraException
    from omegaconf import open_dict
    from omegaconf.errors import OmegaConfBaseException

    admit_own(settings)
    with use_hydra():
        try:
            cfg = compose(name, overrides=expand(settings), return_hydra_config=True)
            check_choices(cfg.hydra, cfg)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(" ".join(describe_hydra_error(error).split())) from None
    if not with_hydra:
        with open_dict(cfg):
            del cfg["hydra"]
    return cfg


@contextmanager
def use_hydra() -> Iterator[Any]:
    """Hydra's loader of conf/, in scripts as well as while a Hydra command runs."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    runs = GlobalHydra.instance().is_initialized()
    conf = {"version_base": "1.3", "config_dir": str(CONF)}
    with nullcontext() if runs else initialize_config_dir(**conf):
        yield GlobalHydra.instance().config_loader()


def list_brought(group: str, option: str | None) -> dict[str, str]:
    """What an option brings: options of other groups, and settings by dotted key."""
    with use_hydra() as loader:
        return _read_brought(loader.repository, group, f"{group}/{option}")


def _read_brought(repository: Any, group: str, path: str) -> dict[str, str]:
    from omegaconf import OmegaConf

    if (result := repository.load_config(path)) is None:
        return {}
    settings: dict[str, str] = {}
    for entry in result.defaults_list:
        if entry.is_override():
            settings[entry.group.lstrip("/")] = str(entry.value)
        elif hasattr(entry, "group"):
            settings[f"{entry.group.lstrip('/')}@{group}.{entry.package}"] = str(entry.value)
        elif not entry.is_self():
            base = entry.path.lstrip("/")
            path = base if entry.path.startswith("/") else f"{group}/{base}"
            settings |= _read_brought(repository, group, path)
    head = "" if result.header["package"] == "_global_" else f"{group}."
    node: Any = OmegaConf.to_container(result.config)
    return settings | flatten(node, head)


def admit_own(arguments: Sequence[str]) -> None:
    """Let configs name what Python files of a --config-dir hold, and what else its options name.

    Names stand behind `_target_` and player=, in arguments, too. A run's config cannot bring more.
    Started processes, and Hydra's options, find the folder in WORDLE_RL_CONFIG_DIR.
    """
    line = "\0".join(arguments)
    match = _FOLDER.search(line)
    folder, texts = match[1] if match else os.environ.get(CONFIG_DIR), [line]
    names = {*os.environ.get(NAMED, "").split()}
    if folder:
        path = Path(folder).absolute()
        if not path.is_dir():
            raise ConfigError(f"--config-dir={folder}: no such folder")
        os.environ[CONFIG_DIR] = folder = str(path)
        sys.path += [folder] if folder not in sys.path else []
        # Not deeper, where run folders may be.
        texts += [read_text(file) for file in path.glob("*/*.yaml")]
        names |= {f"{file.stem}.*" for file in path.glob("*.py")}
    names |= {name for text in texts for name in _TARGET.findall(text)}
    os.environ[NAMED] = " ".join(sorted(n for n in names if not n.startswith(PACKAGE)))


# -- what arguments stand for ---------------------------------------------------------------------


def expand(arguments: Sequence[str]) -> list[str]:
    """Arguments as Hydra reads them: options and texts quoted, and what one brings with another.

    Raises ConfigError for what would not do what it seems to ask. The options that no file holds
    are made by hydra_plugins/wordle_rl_options.py.
    """
    words = [quoted(argument) for argument in arguments]
    values = _by_key(words)
    for group in list_groups():
        if any(argument.partition("=")[0] == f"~{group}" for argument in arguments):
            raise ConfigError(f"{group} must be given, and ~{group} would take it out")
    _refuse_foreign(values)
    run = values.get("init_from", "null")
    if run in ("null", "") or values.get("resume", "null") != "null":
        return words
    for key in ("model", "model.path", "model.shape", "model.name"):
        if key in values:
            raise ConfigError(f"{key} and init_from exclude each other: a run has its own model")
    if "output_dir" in values and (run == LATEST or run.isdecimal()):
        path = find_finished("init_from", run, ROOT / values["output_dir"]).path
        words = [word for word in words if not word.startswith("init_from=")]
        words.append(f"init_from={quote(str(path))}")
    if "trainer.steps" in values and "trainer.epochs" not in values:
        words.append("trainer.epochs=null")  # the run may have had some
    return words


def _refuse_foreign(values: Mapping[str, str]) -> None:
    """Raise ConfigError for keys and values of other programs, and name ours."""
    for key, value in values.items():
        names = (f"{key}={value}", key, ".".join(key.split(".")[:2]), key.split(".")[0])
        if hint := next((_HINTS[name] for name in names if name in _HINTS), None):
            word = f"{key}={value}" if value else key
            raise ConfigError(f"{word}: the setting for this is {hint.format(value)}, see --help")


def check_choices(hydra: Any, cfg: Any) -> None:
    """Raise ConfigError for settings that are made for another kind of model.

    hydra: the node that the composed cfg has beside its own.
    """
    from omegaconf import OmegaConf

    choices = hydra.runtime.choices
    experiment, option = choices.get("experiment"), str(choices.get("model"))
    if experiment == "none" or choices.get("init_from"):  # whose user knows what it lacks
        return
    small = _is_small(option)
    if experiment is not None and experiment not in _FOR_ANY:
        model = list_brought("experiment", experiment).get(
            "model", read_defaults(CONF / "config.yaml")["model"][0]
        )
        scope = f"small models such as {model}; imitate, reinforce and reinforce_words are for"
        if not _is_small(model):
            scope = "a pretrained model, such as model=smollm2 or a hub name, and not for"
        if small != _is_small(model):
            raise ConfigError(f"experiment={experiment} is made for {scope} model={option}")
    path = OmegaConf.select(cfg, "model.path")
    if small and cfg.get("resume") is None and not _is_ours(str(path)):
        raise ConfigError(
            f"model.path={path} is no model of this project, and the settings of model={option} "
            f"are made for a small one: give model={path}"
        )


def _is_small(option: str) -> bool:
    """Whether an option of model= is a model that began in this project."""
    return option.removeprefix("embedded/") in SMALL_MODELS


def _is_ours(path: str) -> bool:
    """Whether a model began untrained in this project, by its name or by its record."""
    embedded = path.startswith("embedded/")
    record = (Path(__file__).parents[1] if embedded else Path()) / path / "wordle_rl.json"
    if record.is_file():
        return '"start": "untrained"' in json.dumps(read_object(record))
    return path == "untrained" or embedded  # who loads a model that is missing says so


def find_model(setting: str, name: str, outputs: Path) -> str:
    """The model.path of an option of model=, a folder, a hub name, a finished run or `latest`.

    A run's model is what it exported. outputs: where the latest is. Raises ConfigError.
    """
    if name == LATEST or (ROOT / name / "manifest.json").is_file():
        return str(find_finished(setting, name, outputs).path / "model")
    path = list_brought("model", os.path.expanduser(name)).get("model.path", "???")
    if path in ("untrained", "???"):
        raise ConfigError(
            f"{setting} must be start, a trained model of model=, a folder, a hub name, a finished "
            f"run or {LATEST}, not {name}"
        )
    return path


def _by_key(arguments: Sequence[str]) -> dict[str, str]:
    """The values of arguments by their keys, without quotes."""
    parts = (argument.partition("=") for argument in arguments)
    return {key.lstrip("+~"): value.strip("'") for key, _, value in parts}


def list_groups() -> list[str]:
    """The groups of conf/config.yaml, in its order."""
    return [*read_defaults(CONF / "config.yaml")]


def read_defaults(file: Path) -> dict[str, tuple[str, str]]:
    """Group -> option and comment of a file's defaults list."""
    entries = _DEFAULT.findall(file.read_text("utf-8"))
    return {group: (option, meaning) for group, option, meaning in entries}


def find_start(run: str, checkpoint: str, output_dir: str | None) -> tuple[RunFolder, Path]:
    """The finished run that init_from= names, and its checkpoint that init_checkpoint= names."""
    check_choice("init_checkpoint", checkpoint, ("best", "last", "start"))
    folder = find_finished("init_from", run, ROOT / output_dir if output_dir else OUTPUTS)
    store = CheckpointStore(folder.checkpoints, read_only=True)
    return folder, store.load_named(checkpoint, "init_checkpoint=")


def find_finished(setting: str, run: str, outputs: Path) -> RunFolder:
    """The finished run that a setting names, see find_run. Raises ConfigError and FolderError."""
    folder = find_run(run, setting, "finished", outputs=outputs)
    if (status := folder.manifest().get("status")) != "finished":
        raise ConfigError(
            f"{setting}={run}: the run is {status}, not finished; finish it first with "
            + folder.resume_command
        )
    return folder


def keep_config(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write the resolved config that the run uses from now on."""
    from omegaconf import OmegaConf

    write_bytes(folder.path / CONFIG, OmegaConf.to_yaml(OmegaConf.create(config)).encode())


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved config in a run folder. Raises FolderError for what is no YAML of settings."""
    return read_yaml(folder / CONFIG)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Every single value of nested mappings by its dotted key, as a command line writes it."""
    values: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            values |= flatten(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            values[f"{prefix}{name}"] = text
    return values


def quoted(argument: str) -> str:
    """Quote an argument for Hydra if it must be read as text, not as a number, null or a list.

    That applies to options of a group, before which a plus is left out, and to values with
    non-ASCII letters, such as paths.
    """
    key, equals, value = argument.partition("=")
    text = value.strip("'\"")
    if key in ("data", "data.path", "data.split") and text not in ("", "none", "null"):
        return f"{key}={quote(text)}"  # a file's name may hold anything, and a slice has brackets
    if key == "data" and equals:
        return "data=none"
    group = key.lstrip("+")
    if equals and group in list_groups() and not _CHOICE.match(value):
        options = [text] if text[:1] in ("[", "{") else text.split(",")
        return f"{group}=" + ",".join(map(_quoted_option, options))
    if not value.isascii() and _PLAIN_TEXT.fullmatch(value):
        return f"{key}='{value}'"
    return argument


def _quoted_option(option: str) -> str:
    """An option as text for Hydra, which would read 12, true or a path as something else."""
    path = os.path.expanduser(option)
    return path if _NAME.fullmatch(path) else quote(path)
