"""Uploads an export to the hub of Hugging Face."""

import shlex
from pathlib import Path

import huggingface_hub
from httpx2 import HTTPError

from wordle_rl.policy.models import may_be_on_hub
from wordle_rl.runs.instantiate import ConfigError


def check_target(name: str) -> None:
    """Raise ConfigError for a name that the hub cannot have, and without a token for it."""
    if not may_be_on_hub(name):
        raise ConfigError(f"--push must be a hub name such as me/wordle, not {name}")
    if huggingface_hub.get_token() is None:
        raise ConfigError("--push needs a token of the hub that may write: hf auth login")


def upload(folder: Path, name: str) -> None:
    """Upload a folder, its card included, as a private model. Raises ConfigError."""
    hub = huggingface_hub.HfApi()
    try:
        url = hub.create_repo(name, private=True, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=folder)
    except (HTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        command = f"hf upload {name} {shlex.quote(str(folder))}"
        raise ConfigError(f"{folder} is written but not uploaded ({reason}): {command}") from error
    print(f"{url}: private, until you change that in its settings")
