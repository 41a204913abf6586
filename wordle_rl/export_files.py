"""Writes a trained model into a new folder, in the form of another library.

source: a checkpoint's model folder, which holds a whole model, or an adapter in PEFT's or mlx-lm's
form. Each writer also copies the tokenizer, and the record of the model's stages.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from wordle_rl.backends import need_mlx
from wordle_rl.policy.stages import stages_of, write_stages
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import module_command


def write_adapter(source: Path, target: Path) -> str:
    """Write an adapter in PEFT's form. Returns the precision of its weights."""
    from wordle_rl.backends.adapter_conversion import (
        ADAPTER,
        FILES,
        convert_adapter,
        read_adapter_form,
    )

    if read_adapter_form(source) == "mlx":
        _check_not_quantised(source, "peft")
        convert_adapter(source, target)
    else:
        target.mkdir(parents=True)
        for name in (ADAPTER, FILES["peft"]):
            shutil.copy(source / name, target)
        write_stages(target, stages_of(source))
    _copy_other_files(source, target)
    return "float32"


def write_merged(source: Path, target: Path, precision: str) -> str:
    """Write whole weights for transformers, with the adapter in them. Returns their precision.

    precision: auto keeps the precision of the base under an adapter, and of any other model.
    """
    from wordle_rl.backends.adapter_conversion import (
        convert_adapter,
        is_adapter,
        read_adapter_form,
    )
    from wordle_rl.backends.torch.merge import merge_model

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".peft-") as room:
        folder = source
        if is_adapter(source) and read_adapter_form(source) == "mlx":
            _check_not_quantised(source, "merged")
            folder = Path(room) / "adapter"
            convert_adapter(source, folder)
            _copy_other_files(source, folder)
        written = merge_model(folder, target, precision)
    write_stages(target, stages_of(source))
    return written


def write_mlx(source: Path, target: Path, precision: str, *, from_mlx: bool) -> str:
    """Write whole weights for mlx-lm, with the adapter in them. Returns their precision.

    from_mlx: whether MLX wrote the source. Of a quantised base the numbers are written, because
    quantising the sum again would lose most of the adapter.
    """
    with need_mlx():
        from wordle_rl.backends.mlx.merge import merge_model
    if from_mlx:
        written = merge_model(source, target, precision)
    else:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".merged-") as room:
            merged = Path(room) / "merged"
            written = write_merged(source, merged, precision)
            merge_model(merged, target, written)
    write_stages(target, stages_of(source))
    return written


def _check_not_quantised(adapter: Path, asked: str) -> None:
    """Raise ConfigError for an adapter on weights that only MLX reads."""
    with need_mlx():
        from wordle_rl.backends.mlx.load import find_base
    base = find_base(adapter)
    if "quantization" in json.loads((base / "config.json").read_bytes()):
        raise ConfigError(
            f"format must be mlx for an adapter on {base.name}, which MLX quantised, not {asked}: "
            f"torch cannot read that base; {module_command('convert')} with --base puts the "
            "adapter on another one"
        )


def _copy_other_files(source: Path, target: Path) -> None:
    """Copy the tokenizer and everything else that is no weight of this model."""
    from wordle_rl.backends.adapter_conversion import ADAPTER, FILES
    from wordle_rl.backends.saved_weights import VALUE_HEAD

    left_out = ("README.md", VALUE_HEAD, ADAPTER, *FILES.values())
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name not in left_out and not (target / file.name).exists():
            shutil.copy(file, target)
