"""The model under an adapter: where it is, and whether it is the one that the adapter belongs to.

An adapter's record, wordle_rl.json, has an entry `base`: the digest of that model, and the name and
absolute path of a local one. An adapter without a record is loaded on the model that its config
names, and so is one whose config was given another name.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wordle_rl.backends.saving import describe_rotation
from wordle_rl.policy.models import MAIN, locate, portable_name
from wordle_rl.runs.files import read_object
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.training.lineage import base_of

ADAPTER = "adapter_config.json"
_WHOLE_SIZE = 2**26  # bytes of weights that are read as a whole; of more, some of each tensor
_SAMPLE = 4096  # bytes at the beginning, the middle and the end of a tensor
# Entries of a config.json that weights do not show. Others differ by the version that wrote them.
_ENTRIES = (
    *("model_type", "num_attention_heads", "n_head", "num_key_value_heads"),
    *("hidden_act", "hidden_activation", "activation_function", "rms_norm_eps", "sliding_window"),
    *("layer_norm_epsilon", "rope_theta", "rope_scaling", "query_pre_attn_scalar"),
    *("final_logit_softcapping", "attn_logit_softcapping", "quantization"),
)


def describe_base(
    location: str, revision: str = MAIN, *, adapter: Path | None = None
) -> dict[str, str]:
    """The entry of an adapter's record for a model. Empty where its files are not here.

    adapter: the folder of the one that is on it already, whose config has the model's name.
    """
    folder = _find_folder(location, revision)
    if folder is None:
        return {}
    entry = {"digest": digest_model(folder)}
    if Path(location).is_dir() and portable_name(location) == location:
        config = {"model": location} if adapter is None else read_object(adapter / ADAPTER)
        name = config.get("base_model_name_or_path") or config["model"]
        entry |= {"name": name, "path": str(folder.resolve())}
    return entry


def check_base(adapter: Path, found: dict[str, str], location: str) -> None:
    """Raise ConfigError if an adapter was trained on another model than the one found."""
    digest = base_of(adapter).get("digest")
    if digest is not None and found.get("digest", digest) != digest:
        raise ConfigError(
            f"{adapter} was trained on another model than {location}, whose weights or config.json "
            "differ: give it its own, or allow it with allow_mismatch=true"
        )


def locate_base(adapter: Path, name: str) -> str:
    """Where the model under an adapter is: a folder, or a hub name.

    Raises ConfigError for a local model that is missing. The hub may have another of its name.
    """
    base = base_of(adapter)
    if (path := base.get("path")) is None or base.get("name") != name:
        return locate(name)
    for folder in (path, locate(name)):
        if Path(folder).is_dir():
            return folder
    raise ConfigError(
        f"{adapter}: its base {name} is missing, which was in {path}: bring it back, resume its "
        "run with model.path=<where it is>, or write that into adapter_config.json"
    )


def digest_model(folder: Path) -> str:
    """Hex sha256 of a model's weights, in any number of files, and of what its config.json tells.

    Of more than 64 MiB of weights only some bytes of each tensor are read.
    """
    config = read_object(folder / "config.json")
    text = {**config, **config.get("text_config", {})}
    text |= describe_rotation(text) | {"model_type": config.get("model_type")}
    digest = hashlib.sha256()
    entries = {name: text[name] for name in _ENTRIES if text.get(name) is not None}
    digest.update(json.dumps(entries, sort_keys=True).encode())
    files = sorted(folder.glob("model*.safetensors"))
    tensors = sorted(part for file in files for part in _list_tensors(file))
    if not tensors:  # of older versions of transformers
        tensors = [
            ("file", "", "", str(file), 0, file.stat().st_size)
            for file in sorted(folder.glob("*.bin"))
        ]
    whole = sum(size for *_, size in tensors) <= _WHOLE_SIZE
    for name, dtype, shape, file, begin, size in tensors:
        digest.update(f"{name} {dtype} {shape}".encode())
        with open(file, "rb") as stream:
            for start, length in _choose_parts(size, whole=whole):
                stream.seek(begin + start)
                digest.update(stream.read(length))
    return digest.hexdigest()


def _choose_parts(size: int, *, whole: bool) -> list[tuple[int, int]]:
    """Begin and length of the parts that are read of so many bytes."""
    if whole or size <= 3 * _SAMPLE:
        return [(0, size)]
    return [(start, _SAMPLE) for start in (0, size // 2, size - _SAMPLE)]


def _list_tensors(file: Path) -> Iterator[tuple[str, str, str, str, int, int]]:
    """Name, type, shape, file, offset and bytes of each tensor of a safetensors file."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            offset = 8 + length + begin
            yield name, entry["dtype"], str(entry["shape"]), str(file), offset, end - begin


def _find_folder(location: str, revision: str) -> Path | None:
    """The folder of a model, or of the local copy of a hub model. None if it is not here."""
    if Path(location).is_dir():
        return Path(location)
    from transformers.utils.hub import cached_file

    file = cached_file(
        location,
        "config.json",
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return None if file is None else Path(file).parent
