"""Composes configs from conf/, and keeps the resolved one in a run folder."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.errors import describe_hydra_error
from wordle_rl.runs.files import read_object, read_text, read_yaml, write_bytes
from wordle_rl.runs.folder import DEBUG, LATEST, OUTPUTS, RunFolder, find_run
from wordle_rl.runs.instantiate import NAMED, PACKAGE, ConfigError, check_choice
from wordle_rl.runs.paths import CONF, CONFIG_DIR, ROOT, quote

CONFIG = "config.yaml"  # the resolved config in a run folder
_DATA = ("data", "data.path", "data.split")
_NO_DATA = ("", "none", "null")
# Keys of other programs, or of Hydra, whose work this program does by another one.
_MEANT: dict[str, str | None] = {
    **dict.fromkeys(("learning_rate", "optim.learning_rate"), "optim.lr"),
    "batch_size": "rollout.groups, which num_generations multiplies",
    **dict.fromkeys(("device", "backend.device"), "backend.accelerator"),
    "hydra/launcher": "hydra.sweeper.jobs, as a study has workers of its own",
    "hydra.launcher": "hydra.sweeper.jobs, as a study has workers of its own",
    "hydra.run": "output_dir={}",
    "hydra.sweep": "hydra.sweeper.folder={}",
    **dict.fromkeys(("hydra.sweeper", "hydra.searchpath")),  # the only ones with an effect
    "hydra": "output_dir, name or hydra.sweeper.folder, as Hydra's own have no effect",
}
_MEANT_VALUES = {
    "logger=wandb": "logger.wandb=true",
    **dict.fromkeys(
        ("backend.accelerator=gpu", "backend.accelerator=tpu"),
        "backend.accelerator=cuda for an NVIDIA GPU, and mps for a Mac's",
    ),
}
_NUMBER = "num_generations"  # a group whose options are numbers, of which any will do
_USUAL = "mini"  # the model without model=
_FOR_ANY = ("study",)  # experiments for models of every kind
# The options of these groups differ in this setting alone. The others stay the run's.
_NAMED = {"rollout": "kind", "optim": "name"}
# What a run that init_from= names does not hand on as it is.
_NOT_TAKEN = ("model", "resume", "init_from", "init_checkpoint", "allow_mismatch", "output_dir")
_PLAIN = re.compile(r"[^\s'\"()\[\]{}]*")  # names of options, separated by commas in a sweep
_FOLDER = re.compile(r"(?:^|\0)(?:--config-dir|-cd)[=\0]([^\0]+)")  # among arguments
_OWN = re.compile(r"""\b(?:_target_|player)['"]?\s*[:=]\s*['"]?(\w+(?:\.\w+)+)""")
_TEXT = re.compile(r"(?!(?:null|true|false|nan|inf)$)[a-z][\w.-]*", re.IGNORECASE)  # to Hydra, too


def compose_config(name: str, settings: Sequence[str] = (), *, with_hydra: bool = False) -> Any:
    """The DictConfig of conf/<name>.yaml with settings as on the command line.

    with_hydra: whether it has the node hydra, too. Raises ConfigError in one line. Works in scripts
    as well as while a Hydra command runs.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    own = admit_own(settings)
    runs = GlobalHydra.instance().is_initialized()
    conf = {"version_base": "1.3", "config_dir": str(CONF)}
    with guarded_files(), nullcontext() if runs else initialize_config_dir(**conf):
        try:
            given = begin_with_run(expand(settings))
            given += [f"hydra.searchpath=[{quote(f'file://{own}')}]"] if own else []
            return compose(name, overrides=given, return_hydra_config=with_hydra)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(" ".join(describe_hydra_error(error).split())) from None


@contextmanager
def guarded_files() -> Iterator[None]:
    """Let Hydra load no file from outside conf/ that read_yaml refuses. Raises FolderError."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.config_source import ConfigSource

    kinds: Any = Plugins.instance().discover(ConfigSource)
    files = next(kind for kind in kinds if kind.scheme() == "file")
    load = files.load_config

    def load_checked(source: Any, config_path: str) -> Any:
        path = Path(source.path, source._normalize_file_name(config_path)).resolve()
        if not path.is_relative_to(CONF):
            read_yaml(path)
        return load(source, config_path)

    files.load_config = load_checked
    try:
        yield
    finally:
        files.load_config = load


def admit_own(arguments: Sequence[str]) -> str | None:
    """Let configs name what Python files of a --config-dir hold, and what else its options name.

    Names stand behind `_target_` and player=, in arguments, too. A run's config cannot bring more.
    Started processes inherit this. Returns the folder; WORDLE_RL_CONFIG_DIR may give it.
    """
    given = "\0".join(arguments)
    found = _FOLDER.search(given)
    folder, texts = found[1] if found else os.environ.get(CONFIG_DIR), [given]
    names = {*os.environ.get(NAMED, "").split()}
    if folder:
        place = Path(folder).absolute()
        if not place.is_dir():
            raise ConfigError(f"--config-dir={folder}: no such folder")
        os.environ[CONFIG_DIR] = folder = str(place)
        sys.path += [folder] if folder not in sys.path else []
        # Not deeper, where run folders may be.
        texts += [read_text(file) for file in place.glob("*/*.yaml")]
        names |= {f"{file.stem}.*" for file in place.glob("*.py")}
    names |= {name for text in texts for name in _OWN.findall(text)}
    os.environ[NAMED] = " ".join(sorted(n for n in names if not n.startswith(PACKAGE)))
    return folder


# -- what arguments stand for ---------------------------------------------------------------------


class Brought(NamedTuple):
    """What the file of an option sets, with the files that it extends."""

    options: dict[str, str]  # of other groups
    settings: dict[str, str]  # by dotted key


def read_option(path: Path) -> Brought:
    """What the file of an option brings, in conf/ or in a folder laid out like it."""
    import yaml

    text, group = path.read_text(encoding="utf-8"), path.parent.name
    node: dict[str, Any] = yaml.safe_load(text) or {}
    brought, entries = Brought({}, {}), node.pop("defaults", [])
    for entry in entries:
        if isinstance(entry, str) and entry != "_self_":
            places = (CONF, path.parent, CONF / group)
            bases = (place / f"{entry.lstrip('/')}.yaml" for place in places)
            for more in map(read_option, [base for base in bases if base.is_file()][:1]):
                brought = Brought(brought.options | more.options, brought.settings | more.settings)
    own = [item for entry in entries if isinstance(entry, dict) for item in entry.items()]
    options = {k.removeprefix("override /"): v for k, v in own if k.startswith("override /")}
    own_group = "" if text.startswith("# @package _global_") else f"{group}."
    return Brought(brought.options | options, brought.settings | flatten(node, own_group))


def expand(arguments: Sequence[str]) -> list[str]:
    """Arguments as Hydra reads them: short forms written out, texts quoted.

    model=<hub name or folder> is model=pretrained model.path=<...>, named by its last part.
    A folder also brings the prompt that its last run had, and an adapter its rank. debug=true makes
    a run of two steps without a report. Raises ConfigError for what would not do what it seems to
    ask, such as a pretrained model.path with an embedded model's settings.
    """
    given = [*DEBUG] if "debug=true" in arguments else []
    for argument in arguments:
        if argument == "debug=true":
            continue
        key, _, value = argument.partition("=")
        if key[:1] == "~" and key[1:] in list_groups():
            raise ConfigError(f"{key[1:]} must be given, and {argument} would take it out")
        paths = [os.path.expanduser(path) for path in value.strip("'\"").split(",")]
        kind, _, ours = value.partition("/")
        if key == "model" and kind in ("embedded", "fetched") and _option("model", ours).is_file():
            given.append(quoted(f"model={ours}"))
        elif key == "model" and all(
            not _option("model", path).is_file() and ("/" in path or Path(path).is_dir())
            for path in paths
        ):
            given += ["model=pretrained", "model.path=" + ",".join(map(quote, paths))]
            if len(paths) == 1:
                given += _settings_of_folder(Path(paths[0]).resolve(), _by_key(arguments))
        elif key.lstrip("+") == _NUMBER and value:
            given.append(_choose_number(value))
        else:
            given.append(quoted(argument))
    said = _by_key(given)
    _refuse_foreign(said)
    if said.get("experiment") != "none":  # whose user knows what it lacks
        _check_model(said)
    return [*given, *_restore(said)]


def _refuse_foreign(said: Mapping[str, str]) -> None:
    """Raise ConfigError for keys and values of other programs, and name ours."""
    for key, value in said.items():
        names = (key, ".".join(key.split(".")[:2]), key.split(".")[0])
        if meant := next((_MEANT[name] for name in names if name in _MEANT), None):
            raise ConfigError(f"{key}: the setting for this is {meant.format(value)}, see --help")
        if meant := _MEANT_VALUES.get(f"{key}={value}"):
            raise ConfigError(f"{key}={value}: the setting for this is {meant}")


def _choose_number(value: str) -> str:
    """num_generations=<value> as the choice of an option, which a number without a file becomes."""
    from hydra.core.config_store import ConfigStore

    if "," in value:  # of a study, whose trials name one each
        return f"{_NUMBER}={value}"
    name = value.strip("'\"")
    if not _option(_NUMBER, name).is_file():
        node = {_NUMBER: int(name) if name.isdecimal() else name}
        ConfigStore.instance().store(group=_NUMBER, name=name, node=node, package="_global_")
    return f"{_NUMBER}='{name}'"


def _settings_of_folder(folder: Path, said: Mapping[str, str]) -> list[str]:
    """What a model's folder brings, where neither a typed setting nor an experiment says it."""
    brought = {"model.name": quote(folder.name)}
    if (folder / "adapter_config.json").is_file() and not any(
        key.startswith("model.lora") for key in said
    ):
        brought["model.lora"] = "null"
    try:
        taught = str(read_object(folder / "wordle_rl.json")["stages"][-1]["prompt"])
    except (OSError, ValueError, LookupError, TypeError):
        taught = ""  # no record, or who reads it next says what is wrong
    file = _option("experiment", said.get("experiment"))
    ruled = file.is_file() and "prompt" in read_option(file).options
    if _option("prompt", taught.split(" ")[0]).is_file() and "prompt" not in said and not ruled:
        brought |= {"prompt.think": "false", **_by_key(f"prompt={taught}".split())}
    return [f"{key}={value}" for key, value in brought.items() if key not in said]


def _restore(said: Mapping[str, str]) -> list[str]:
    """A typed option's own settings, where the experiment's are for another option of its group.

    Of model= only what it is: the experiment says how it learns. Rollouts and optimizers differ in
    their kind alone.
    """
    file, given = _option("experiment", said.get("experiment")), []
    options, settings = read_option(file) if file.is_file() else Brought({}, {})
    for group, usual in options.items():
        option, typed = _option(group, said.get(group)), {*said} - {group}
        if said.get(group) == usual or not option.is_file() or group in _NAMED or "resume" in said:
            continue
        own = read_option(option).settings
        for key in (key for key in settings if key.startswith(f"{group}.")):
            heads = [*itertools.accumulate(key.split("."), "{}.{}".format)]
            if typed & {*heads} or (group == "model" and key not in ("model.name", "model.path")):
                continue
            lacks = (h for h in heads if not any(f"{k}.".startswith(f"{h}.") for k in own))
            given.append(f"{key}={own[key]}" if key in own else f"~{next(lacks)}")
    return list(dict.fromkeys(given))


def _option(group: str, name: str | None) -> Path:
    return CONF / group / f"{name}.yaml"


def _check_model(said: Mapping[str, str]) -> None:
    """Raise ConfigError for settings that are made for another kind of model."""
    experiment, path = said.get("experiment"), said.get("model.path", "")
    file = _option("experiment", experiment)
    meant = read_option(file).options.get("model", _USUAL) if file.is_file() else _USUAL
    option = said.get("model", meant)
    other = [one for one in option.split(",") if _is_small(one) != _is_small(meant)]
    if file.is_file() and other and experiment not in _FOR_ANY:
        suits = f"small models such as {meant}; imitate, reinforce and reinforce_words are for"
        if not _is_small(meant):
            suits = "a pretrained model, such as model=smollm2 or a hub name, and not for"
        raise ConfigError(f"experiment={experiment} is made for {suits} model={other[0]}")
    new = path and "," not in path and "resume" not in said
    if new and _is_small(option) and not _is_ours(path):
        raise ConfigError(
            f"model.path={path} is no model of this project, and the settings of model={option} "
            f"are made for a small one: give model={path}"
        )


def _is_small(option: str) -> bool:
    """Whether an option of model= is a model of this project."""
    return bool(path := _path_of(option)) and _is_ours(path)


def _path_of(option: str) -> str:
    """The path of an option of model=, "" where it has none."""
    file = _option("model", option)
    path = re.search(r"^ *path: (\S+)", file.read_text("utf-8") if file.is_file() else "", re.M)
    return path[1] if path else ""


def find_model(setting: str, name: str, outputs: Path) -> str:
    """The model.path of an option of model=, a folder, a hub name, a finished run or `latest`.

    A run's model is what it exported. outputs: where the latest is. Raises ConfigError.
    """
    if name == LATEST or (ROOT / name / "manifest.json").is_file():
        return str(_find_finished(setting, name, outputs).path / "model")
    path = _path_of(name) or str(Path(name).expanduser())
    unknown = path == name and "/" not in name and not Path(name).is_dir()
    if unknown or path in ("untrained", "???"):
        raise ConfigError(
            f"{setting} must be start, a trained model of model=, a folder, a hub name, a finished "
            f"run or {LATEST}, not {name}"
        )
    return path


def _by_key(arguments: Sequence[str]) -> dict[str, str]:
    """The values of arguments by their keys, without quotes."""
    split = (argument.partition("=") for argument in arguments)
    return {key.lstrip("+~"): value.strip("'") for key, _, value in split}


def _is_ours(path: str) -> bool:
    """Whether a model began untrained in this project, by its name or by its record."""
    embedded = path.startswith("embedded/")
    record = (Path(__file__).parents[1] if embedded else Path()) / path / "wordle_rl.json"
    if not record.is_file():
        return path == "untrained" or embedded
    try:
        stages = read_object(record)["stages"]
        return bool(stages) and stages[0].get("start") == "untrained"
    except (ValueError, LookupError, AttributeError, TypeError):
        return True  # who reads it next says what is wrong


def list_groups() -> list[str]:
    """The groups of conf/config.yaml, in its order."""
    import yaml

    entries = yaml.safe_load((CONF / "config.yaml").read_text("utf-8"))["defaults"]
    names = [str(name) for entry in entries if isinstance(entry, dict) for name in entry]
    return [name for name in names if not name.startswith("override ")]


def begin_with_run(given: list[str]) -> list[str]:
    """Arguments in which init_from=<run> is a model whose file brings all settings of the run.

    So they win over conf/config.yaml, and what is typed wins over them. A group whose option is
    typed, or chosen by an experiment that is typed, is not the run's any more. Of a rollout and an
    optimizer only the kind changes. The history goes with the rollout, the data with the algorithm.
    Raises ConfigError and FolderError.
    """
    said = _by_key(given)
    if said.get("init_from", "null") in ("null", "") or said.get("resume", "null") != "null":
        return given
    for key in ("model", "model.path", "model.shape", "model.name"):
        if key in said:
            raise ConfigError(f"{key} and init_from exclude each other: a run has its own model")
    folder, start = find_start(
        said["init_from"], said.get("init_checkpoint", "best"), said.get("output_dir")
    )
    experiment = _option("experiment", said.get("experiment"))
    brought = read_option(experiment) if experiment.is_file() else Brought({}, {})
    groups = list_groups()[: list_groups().index("model")]
    anew = {name for name in groups if name in said or name in brought.options}
    anew |= {"history"} & set(groups) if "rollout" in anew else set()
    saved = read_config(folder.path)
    for part in ("model", "rollout", "optim", "sampling", "trainer"):
        if not isinstance(saved.get(part), dict):
            raise ConfigError(f"{folder.path / CONFIG}: {part} must be a group of settings")
    kept = {key for key in saved if key not in anew} | {*_NAMED}
    node = {key: saved[key] for key in saved if key in kept and key not in _NOT_TAKEN}
    for group in anew & {*_NAMED}:
        node[group] = {key: value for key, value in saved[group].items() if key != _NAMED[group]}
    if "algorithm" in anew:
        node.pop("data", None)
    _relink(node, saved, str(start / "model"))
    if "trainer.steps" in {**said, **brought.settings}:
        node["trainer"]["epochs"] = None
    defaults = [{f"override /{name}": None} for name in groups if name not in anew]
    text = json.dumps(node := {"defaults": defaults, **node}, sort_keys=True)
    name = f"run_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(group="model", name=name, node=node, package="_global_")
    return [f"model={name}", *given]


def find_start(run: str, checkpoint: str, output_dir: str | None) -> tuple[RunFolder, Path]:
    """The finished run that init_from= names, and its checkpoint that init_checkpoint= names."""
    check_choice("init_checkpoint", checkpoint, ("best", "last", "start"))
    folder = _find_finished("init_from", run, ROOT / output_dir if output_dir else OUTPUTS)
    store = CheckpointStore(folder.checkpoints, read_only=True)
    return folder, store.load_named(checkpoint, "init_checkpoint=")


def _find_finished(setting: str, run: str, outputs: Path) -> RunFolder:
    folder = find_run(run, setting, "finished", outputs=outputs)
    if (status := folder.manifest().get("status")) != "finished":
        raise ConfigError(
            f"{setting}={run}: the run is {status}, not finished; finish it first with "
            + folder.resume_command
        )
    return folder


def _relink(node: dict[str, Any], saved: dict[str, Any], path: str) -> None:
    """Start from the weights in path, and let settings follow others where they did in the run."""
    model = saved["model"]
    name = saved["name"] if model.get("path") == "untrained" else model.get("name")
    node["model"] = {**model, "name": name, "path": path, "shape": {}, "revision": "main"}
    node["num_generations"] = saved["rollout"].get("num_generations")
    if "rollout" in node:
        node["rollout"] = {**node["rollout"], "num_generations": "${num_generations}"}
    for group, key, source in (
        ("optim", "lr", "learning_rate"),
        ("sampling", "max_tokens", "max_tokens"),
    ):
        if group in node and node[group].get(key) == model.get(source):
            node[group] = {**node[group], key: f"${{model.{source}}}"}


def keep_config(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write the resolved config that the run uses from now on."""
    from omegaconf import OmegaConf

    write_bytes(folder.path / CONFIG, OmegaConf.to_yaml(OmegaConf.create(config)).encode())


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved config in a run folder. Raises FolderError for what is no YAML of settings."""
    return read_yaml(folder / CONFIG)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Every single value of nested mappings by its dotted key, as a command line writes it."""
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found[f"{prefix}{name}"] = text
    return found


def quoted(argument: str) -> str:
    """Quote an argument for Hydra if it must be read as text, not as a number, null or a list.

    That applies to options of a group, and to values with non-ASCII letters, such as paths.
    """
    key, equals, value = argument.partition("=")
    if key in _DATA and equals and value not in _NO_DATA:
        # A file's name may hold anything, and a slice has brackets.
        key = "data.path" if key == "data" else key
        return f"{key}=" + quote(value.strip("'"))
    if key == "data" and equals:
        return "data.path=null"
    if not value.isascii() and _PLAIN.fullmatch(value) and not {",", "\\"} & set(value):
        return f"{key}='{value}'"
    if not equals or not key or "/" in key or not (CONF / key).is_dir():
        return argument
    if _PLAIN.fullmatch(value):
        options = (o if _TEXT.fullmatch(o) else f"'{o}'" for o in value.split(","))
        return f"{key}=" + ",".join(options)
    return f"{key}='{value}'" if value[0] in "[{" and "'" not in value else argument
