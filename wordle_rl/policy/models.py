"""Where models are: on the hub, on disk or in this package, and what is known of them."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from wordle_rl.game.feedback_table import cache_folder
from wordle_rl.runs.files import read_yaml
from wordle_rl.runs.paths import runnable

UNTRAINED = "untrained"
EMBEDDED = Path(__file__).resolve().parents[1] / "embedded"
MAIN = "main"  # the newest revision of a hub model
_HUB_NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)


@cache
def known_models() -> dict[str, dict[str, Any]]:
    """What models.yaml says of models, by their names in model.path."""
    return read_yaml(Path(__file__).with_name("models.yaml"))


def locate(name: str) -> str:
    """The folder of an embedded or a fetched model; any other folder or hub name as it is."""
    kind, _, model = name.partition("/")
    if kind == "embedded":
        return str(EMBEDDED / model)
    return str(fetched_folder(model)) if kind == "fetched" else name


def may_be_on_hub(name: str) -> bool:
    """Whether a name has the form of the hub's names, such as Qwen/Qwen2.5-3B-Instruct."""
    return _HUB_NAME.fullmatch(name) is not None


def fetched_folder(model: str) -> Path:
    """Where a fetched model is kept: $WORDLE_RL_CACHE/models, else ~/.cache/wordle-rl/models."""
    return cache_folder() / "models" / model


def fetch_command(name: str) -> str | None:
    """The command that fetches a model of this name. None where there is none."""
    kind, _, model = name.partition("/")
    known = kind == "fetched" and name in known_models()
    return runnable(f"wordle-rl fetch {model}") if known else None


def fetched_twin(name: str) -> str | None:
    """The fetched model that can stand in the place of a model of the hub. None without one."""
    twins = (model for model, entry in known_models().items() if name in entry.get("twins", ()))
    return next((model.partition("/")[2] for model in twins), None)


def portable_name(location: str) -> str:
    """The opposite of locate(): a name that means the same model on other machines."""
    path = Path(location)
    for kind, root in (("embedded", EMBEDDED), ("fetched", fetched_folder(""))):
        if path.parent == root:
            return f"{kind}/{path.name}"
    return location


def holds_model(folder: Path) -> bool:
    """Whether a folder has a model's or an adapter's config and weights."""
    described = any((folder / f).is_file() for f in ("config.json", "adapter_config.json"))
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return described and any(file.is_file() for file in weights)
