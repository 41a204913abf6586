"""Composes configs from conf/, and writes the resolved one into a run folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import CONF
from wordle_rl.runs.untrusted import printable

CONFIG = "config.yaml"  # the resolved config in a run folder
_MOST = 5_000  # names and values in it; ours have some 500
_DEEPEST = 20  # groups within each other
_NO_TEXT = re.compile("[\udc80-\udcff]")


@contextmanager
def compose_from_conf() -> Iterator[None]:
    """Let hydra.compose read conf/, in scripts as well as while a Hydra command runs."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    if GlobalHydra.instance().is_initialized():
        yield
    else:
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            yield


def keep_config(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write the resolved config that the run uses from now on."""
    from omegaconf import OmegaConf

    write_bytes(folder.path / CONFIG, OmegaConf.to_yaml(OmegaConf.create(config)).encode())


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved config in a run folder. Raises ValueError for what is no YAML of settings."""
    import yaml

    try:
        found = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{folder / CONFIG}: not YAML of settings")
    return found


def check_plain_yaml(text: str) -> None:
    """Raise ValueError for what a saved config never holds, and what could blow it up."""
    import yaml

    depth = 0
    for count, event in enumerate(yaml.parse(text, yaml.SafeLoader)):
        if count > _MOST:
            raise ValueError(f"more than {_MOST} names and values")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels")
        where = f"line {event.start_mark.line + 1}"
        if getattr(event, "anchor", None) is not None:
            raise ValueError(f"{where}: anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"{where}: tags are not allowed")
        value = getattr(event, "value", "")
        if "${" in value:
            raise ValueError(f"{where}: references are not allowed, {value[:60]!r}")
        value = _NO_TEXT.sub("", value)  # of a path, whose bytes need not be text
        if printable(value) != value:
            raise ValueError(f"{where}: control characters are not allowed")


def names_are_text(node: Any) -> bool:
    if isinstance(node, dict):
        return all(isinstance(key, str) and names_are_text(node[key]) for key in node)
    return not isinstance(node, list) or all(map(names_are_text, node))
