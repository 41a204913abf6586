"""What backends share while they load models: the hub, checked weights, and errors in one line."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from huggingface_hub.utils import get_session
from safetensors.torch import load_file

from wordle_rl.policy.models import MAIN, fetch_command, fetched_twin
from wordle_rl.policy.tokenizer import list_stop_ids
from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.errors import full_disk, missing
from wordle_rl.runs.files import read_object, read_text
from wordle_rl.runs.instantiate import ConfigError

VALUE_HEAD = "value_head.safetensors"  # beside the model's own files, whose loaders ignore it
TEMPLATE = "chat_template.jinja"
_PROCESSORS = "chat_template.json"
_TIMEOUT = 10.0  # seconds, as in the hub's library


def notice_offline(location: str) -> None:
    """Go offline, as with HF_HUB_OFFLINE=1, when no connection to the hub can be made.

    location: a folder, which needs no hub, or a hub name. On a slow network the hub's own timeouts
    apply.
    """
    if Path(location).is_dir() or constants.HF_HUB_OFFLINE:
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=_TIMEOUT)
    except Exception as error:  # the HTTP library, and so its errors, differ by version
        constants.HF_HUB_OFFLINE = type(error).__name__ == "ConnectError"


@contextmanager
def explain_load_errors(location: str, *, on_disk: bool, library: str = "") -> Iterator[None]:
    """Turn any error in the block into a ConfigError of one line.

    on_disk: whether the model's files are here, so that an error is about their content and not
    about the network. library: the one that reads them. A full disk and a library that is not
    installed have messages of their own, and pass through.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # the parsers of three libraries raise all kinds for bad files
        if full_disk(error) or (isinstance(error, ModuleNotFoundError) and missing(error)):
            raise
        if on_disk:
            reason = " ".join(str(error).split())[:200]
            tail = f" by {library}" if library else ""
            raise ConfigError(f"model.path={location} cannot be loaded{tail}: {reason}") from error
        twin = fetched_twin(location)
        fetch = fetch_command(f"fetched/{twin}")
        hint = f"; `{fetch}`, then model={twin}, needs no hub" if twin else ""
        raise ConfigError(
            f"model.path={location} is neither a folder nor in the local cache, and the hub cannot "
            f"be reached: connect and run `hf download {location}`, or give a folder that holds it"
            f" with model.path=/path/to/it{hint}"
        ) from error


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    """Raise CheckpointError, in one line, if the file is missing or the block cannot read it."""
    if not file.is_file():
        kind = "without a value head" if file.name == VALUE_HEAD else "by another kind of model"
        raise CheckpointError(f"{file} is missing: the checkpoint was written {kind}")
    try:
        yield
    except Exception as error:  # safetensors, torch and MLX raise errors of different kinds
        raise CheckpointError(f"{file}: cannot be read as safetensors ({error})") from None


def read_stop_ids(path: str) -> tuple[int, ...]:
    """The stop ids of a model's generation config, none without one. path: folder or hub name."""
    from transformers import GenerationConfig

    try:
        return list_stop_ids(GenerationConfig.from_pretrained(path).eos_token_id)
    except OSError:
        return ()


def load_tokenizer(location: str, revision: str = MAIN, *, adapter: Path | None = None) -> Any:
    """The transformers tokenizer of a folder or hub name, with its chat template.

    adapter: a folder that may have the chat template with which it was taught.
    """
    from transformers import AutoTokenizer
    from transformers.utils.hub import cached_file

    inner: Any = AutoTokenizer.from_pretrained(location, revision=revision, trust_remote_code=False)
    if inner.chat_template is None:  # where a processor keeps it
        file = cached_file(
            location,
            _PROCESSORS,
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        if file is not None:
            inner.chat_template = read_object(Path(file)).get("chat_template")
    if adapter is not None and (template := adapter / TEMPLATE).is_file():
        inner.chat_template = read_text(template)
    return inner


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CheckpointError."""
    with explain_read_errors(file):
        return load_file(file)


def check_fit(
    file: Path, saved: Mapping[str, Any], own: Mapping[str, Any], *, optional: Collection[str] = ()
) -> None:
    """Raise CheckpointError unless a file's weights have a model's own names and shapes.

    saved, own: arrays of any library. optional: names that the file may lack.
    """
    shapes = {name: list(array.shape) for name, array in saved.items()}
    expected = {
        name: list(a.shape) for name, a in own.items() if name in shapes or name not in optional
    }
    names = [n for n in sorted({*shapes, *expected}) if shapes.get(n) != expected.get(n)]
    if names:
        pair = shapes.get(names[0], "missing"), expected.get(names[0], "nothing")
        raise CheckpointError(
            f"{file} belongs to another model: {len(names)} weights are wrong, such as {names[0]}, "
            f"which is {pair[0]} in place of {pair[1]}"
        )
