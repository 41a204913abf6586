"""Options of conf/ that no file holds, and files of one's own, for every composition by Hydra.

    model=Qwen/Qwen3-0.6B  a hub name or a folder: pretrained, with this path
    num_generations=12     any number
    data=rows.jsonl        a file, or a data set of the hub
    init_from=outputs/run  a run: its model, and its options in every group

Hydra looks here last, so no file of conf/ is hidden.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from wordle_rl.runs.config import find_finished, find_start, read_config
from wordle_rl.runs.files import read_object, read_yaml
from wordle_rl.runs.folder import OUTPUTS
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF, CONFIG_DIR

# Groups whose options here choose or set something in others.
_GLOBAL_GROUPS = ("model", "num_generations", "init_from", "rollout", "algorithm")
_GROUPS = ("backend", "algorithm", "reward", "curriculum", "rollout", "prompt", "logger", "optim")
_BESIDE = {"rollout": "history", "algorithm": "data"}  # what another option of the first one drops
_KINDS = {"rollout": "kind", "optim": "name"}  # all that a typed option of these changes
# What a run does not hand on.
_RUN_SETTINGS = ("resume", "init_from", "init_checkpoint", "allow_mismatch", "output_dir")
_SHIPPED_MODEL = re.compile(
    f"model/(?:embedded|fetched)/({'|'.join(f.stem for f in CONF.glob('model/*'))})"
)
_START = "${wordle_rl.start:${init_from},${init_checkpoint}}"


class OwnOptions(SearchPathPlugin):
    """Adds the two sources below to the search path of this project's commands."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if str(CONF) not in {part.path for part in search_path.get_path()}:
            return
        if folder := os.environ.get(CONFIG_DIR):
            search_path.prepend("own", f"own://{folder}")
        search_path.append("options", "options://")


class OwnFiles(FileConfigSource):
    """The files of --config-dir, of which only plain ones are loaded."""

    @staticmethod
    def scheme() -> str:
        return "own"

    def load_config(self, config_path: str) -> ConfigResult:
        read_yaml(Path(self.path, self._normalize_file_name(config_path)))
        return super().load_config(config_path)


class Options(ConfigSource):
    """The options that are made when they are chosen."""

    @staticmethod
    def scheme() -> str:
        return "options"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path == "init_from"

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return []

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        if name == "None":  # how Hydra asks for no option
            return False
        if group == "model":
            return "/" in name or Path(name).is_dir()
        if group == "prompt" and _read_taught(name):
            return True
        known = group in ("data", "init_from") or (group == "num_generations" and name.isdecimal())
        return known or _is_run(name)

    def load_config(self, config_path: str) -> ConfigResult:
        group, _, name = config_path.partition("/")
        if match := _SHIPPED_MODEL.fullmatch(config_path):
            return FileConfigSource("main", str(CONF)).load_config(f"model/{match[1]}")
        package = "_global_" if group in _GLOBAL_GROUPS else None
        if _is_run(name) and group != "init_from":
            node = _option_of_run(name, group)
        else:
            node = _MAKERS[group](name)
        header = {"package": package}
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(node), header)


# -- models ---------------------------------------------------------------------------------------


def _make_model(name: str) -> dict[str, Any]:
    """The option of a hub name, or of a folder, which brings the prompt that it was taught."""
    folder = Path(name).resolve()
    model: dict[str, Any] = {"path": name, "name": folder.name}
    if (folder / "adapter_config.json").is_file():
        model["lora"] = None  # the adapter has its own
    overrides = [{"override /prompt": name}] if _read_taught(name) else []
    return {"defaults": ["pretrained", *overrides, "_self_"], "model": model}


def _read_taught(folder: str) -> list[str]:
    """The prompt of a model's last run, and its settings, as its folder says; none without one."""
    try:
        words = str(read_object(Path(folder) / "wordle_rl.json")["stages"][-1]["prompt"]).split()
    except (OSError, ValueError, LookupError, TypeError):
        return []  # no record, or who reads it next says what is wrong
    return words if words and (CONF / "prompt" / f"{words[0]}.yaml").is_file() else []


def _make_prompt(name: str) -> dict[str, Any]:
    option, *settings = _read_taught(name)
    node: Any = OmegaConf.from_dotlist([setting.removeprefix("prompt.") for setting in settings])
    return {"defaults": [option, "_self_"], **dict(node)}


# -- runs -----------------------------------------------------------------------------------------


def _is_run(name: str) -> bool:
    return name.startswith("/") and Path(name, "manifest.json").is_file()


def _make_start(name: str) -> dict[str, Any]:
    run = str(find_finished("init_from", name, OUTPUTS).path)
    return {"defaults": ["_self_", {"override /model": run}], "init_from": run}


def _option_of_run(run: str, group: str) -> dict[str, Any]:
    """What a run had in a group. With its model it hands on all that has no options."""
    config = read_config(Path(run))
    if group == "model":
        return _make_model_of_run(run, config)
    if group in _BESIDE:
        return {"defaults": ["_self_", {f"override /{_BESIDE[group]}": run}], group: config[group]}
    return config.get(group) or {"defaults": ["none"]}


def _make_model_of_run(run: str, config: dict[str, Any]) -> dict[str, Any]:
    """The model, and every setting whose group has no option of the run's."""
    for part in ("model", "rollout", "optim", "sampling", "trainer"):
        if not isinstance(config.get(part), dict):
            raise ConfigError(f"{run}/config.yaml: {part} must be a group of settings")
    omissions = {*_RUN_SETTINGS, *_GROUPS, *_BESIDE.values()} - {*_KINDS}
    node = {key: value for key, value in config.items() if key not in omissions}
    for group, kind in _KINDS.items():
        node[group] = {key: value for key, value in config[group].items() if key != kind}
    model, count = config["model"], config["rollout"].get("num_generations")
    name = config["name"] if model.get("path") == "untrained" else model.get("name")
    node["model"] = {**model, "name": name, "path": _START, "shape": {}, "revision": "main"}
    # Settings follow others as they did in the run.
    node["num_generations"], node["rollout"]["num_generations"] = count, "${num_generations}"
    links = (("optim", "lr", "learning_rate"), ("sampling", "max_tokens", "max_tokens"))
    for group, key, source in links:
        if config[group].get(key) == model.get(source):
            node[group] = {**node[group], key: f"${{model.{source}}}"}
    overrides = [{f"override /{group}": run} for group in _GROUPS if group in config]
    return {"defaults": ["_self_", *overrides], **node}


_MAKERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "model": _make_model,
    "prompt": _make_prompt,
    "num_generations": lambda name: {"num_generations": int(name)},
    "data": lambda name: {"defaults": ["none", "_self_"], "path": name},
    "init_from": _make_start,
}
OmegaConf.register_new_resolver(
    "wordle_rl.start",
    lambda run, checkpoint: str(find_start(str(run), str(checkpoint), None)[1] / "model"),
    replace=True,
)
