"""Checks of an adapter's folder against itself and its base; for every backend."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from wordle_rl.backends.adapter_conversion import (
    ADAPTER,
    FILES,
    Form,
    check_adapter_form,
    read_adapter_config,
    read_shapes,
)
from wordle_rl.backends.saved_weights import check_shapes
from wordle_rl.policy.model_names import fetch_command, locate, may_be_on_hub
from wordle_rl.runs.checkpoints import CheckpointError
from wordle_rl.runs.instantiate import ConfigError

_BASE: dict[Form, str] = {"peft": "base_model_name_or_path", "mlx": "model"}
# The side of a low-rank matrix that is the rank. mlx-lm's matrices are the transposes of PEFT's.
_RANK_SIDE = {"lora_A": 0, "lora_B": 1, "lora_a": 1, "lora_b": 0}
_MATRIX = re.compile(r"\.(lora_[AaBb])(\.weight)?$")


def find_base_name(folder: Path, form: Form) -> str:
    """The name of the model under an adapter. Raises ConfigError when it names none that may be."""
    check_adapter_form(folder, form)
    name = read_adapter_config(folder).get(_BASE[form])
    if not name:
        raise ConfigError(f"{folder / ADAPTER} does not name its model: add an entry {_BASE[form]}")
    location = locate(name)
    if Path(location).exists() or (location == name and may_be_on_hub(name)):
        return str(name)
    command = fetch_command(name)
    raise ConfigError(
        f"{folder / ADAPTER}: {_BASE[form]}={name} is no folder here: "
        + (f"run {command} once" if command else "write where its model is")
    )


def check_ranks(folder: Path, form: Form) -> None:
    """Raise ConfigError unless an adapter's weights have the rank that its config says."""
    file, config = folder / FILES[form], read_adapter_config(folder)
    if not file.is_file() or config.get("rank_pattern"):
        return
    rank = config.get("r") if form == "peft" else config["lora_parameters"]["rank"]
    for name, shape in read_shapes(file).items():
        found = _MATRIX.search(name)
        if found and len(shape) == 2 and shape[_RANK_SIDE[found[1]]] != rank:
            raise ConfigError(
                f"{folder / ADAPTER}: the rank must be {shape[_RANK_SIDE[found[1]]]}, as in the "
                f"weights {name}, not {rank}"
            )


def check_weights_fit(
    folder: Path, saved: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]]
) -> None:
    """Raise ConfigError unless an adapter's weights have the names and shapes of its base.

    saved, expected: shape of each weight.
    """
    try:
        check_shapes(folder / ADAPTER, saved, expected)
    except CheckpointError as error:
        raise ConfigError(f"model.path={folder}: the adapter does not fit ({error})") from None
