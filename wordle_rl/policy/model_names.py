"""What a model's name in the settings means: a folder, an embedded or fetched model, or the hub."""

from __future__ import annotations

import re
from pathlib import Path

from wordle_rl.game.feedback_table import cache_folder
from wordle_rl.runs.errors import SMOLLM2
from wordle_rl.runs.files import check_entries, read_object

EMBEDDED = Path(__file__).resolve().parents[1] / "embedded"
FETCHED = {"smollm2": SMOLLM2}  # models that a command fetches, once, and that command
_HUB_NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)


def locate(name: str) -> str:
    """The folder of an embedded or a fetched model; any other folder or hub name as it is."""
    kind, _, model = name.partition("/")
    if kind == "embedded":
        return str(EMBEDDED / model)
    return str(fetched_folder(model)) if kind == "fetched" else name


def base_of_embedded(name: str) -> str | None:
    """The name of the model under an embedded adapter. None for everything else."""
    config = Path(locate(name)) / "adapter_config.json"
    if not name.startswith("embedded/") or not config.is_file():
        return None
    described = read_object(config)
    check_entries(config, described, {"base_model_name_or_path": str | None})
    return described.get("base_model_name_or_path")


def may_be_on_hub(name: str) -> bool:
    """Whether a name has the form of the hub's names, such as Qwen/Qwen2.5-3B-Instruct."""
    return _HUB_NAME.fullmatch(name) is not None


def fetched_folder(model: str) -> Path:
    """Where a fetched model is kept: $WORDLE_RL_CACHE/models, else ~/.cache/wordle-rl/models."""
    return cache_folder() / "models" / model


def fetch_command(name: str) -> str | None:
    """The command that fetches a model of this name. None where there is none."""
    kind, _, model = name.partition("/")
    return FETCHED.get(model) if kind == "fetched" else None


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
