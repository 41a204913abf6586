"""Composes configs from conf/, and keeps the resolved one in a run folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from wordle_rl.runs.errors import describe_hydra_error
from wordle_rl.runs.files import read_yaml, write_bytes
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF, quote

CONFIG = "config.yaml"  # the resolved config in a run folder
_DATA = ("data", "data.path", "data.split")
_NO_DATA = ("", "none", "null")
_PLAIN = re.compile(r"[^\s'\"()\[\]{}]*")  # names of options, separated by commas in a sweep
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

    runs = GlobalHydra.instance().is_initialized()
    conf = {"version_base": "1.3", "config_dir": str(CONF)}
    with nullcontext() if runs else initialize_config_dir(**conf):
        try:
            given = [quoted(setting) for setting in with_experiment(name, settings)]
            return compose(name, overrides=given, return_hydra_config=with_hydra)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(" ".join(describe_hydra_error(error).split())) from None


def with_experiment(name: str, settings: Sequence[str]) -> list[str]:
    """Settings of train.py with experiment=none where they choose a model and no experiment.

    Alone, train.py runs the demo, whose settings suit its own small model and no other.
    """
    given = [*settings]
    chosen = [setting.partition("=")[0] for setting in given]
    if name == "config" and "model" in chosen and "experiment" not in chosen:
        given.insert(chosen.index("model"), "experiment=none")
    return given


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
