"""Converts LoRA adapters between PEFT and mlx-lm, or fuses one into its MLX model's weights.

python -m wordle_rl.convert <adapter> <new folder> [--base <model>]    PEFT <-> mlx-lm
python -m wordle_rl.convert <adapter> <new folder> --fuse              a model without adapter
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

from collections.abc import Sequence
from pathlib import Path

from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain, user_errors
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import module_command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = CommandParser(
        prog=module_command("convert"),
        description="Convert a LoRA adapter from PEFT's form to mlx-lm's, or back.",
    )
    parser.add_argument("adapter", type=Path, help="folder with adapter_config.json")
    parser.add_argument("target", type=Path, help="new folder")
    parser.add_argument("--base", help="base model that the new adapter names")
    parser.add_argument(
        "--fuse", action="store_true", help="write the MLX model with the adapter in its weights"
    )
    given = parser.parse_args(arguments)
    with user_errors():
        if given.fuse:
            if given.base is not None:
                raise ConfigError("--base and --fuse exclude each other: give one of them")
            print(_fuse(given.adapter, given.target))
            return
        from wordle_rl.backends.adapter_conversion import convert_adapter

        form = convert_adapter(given.adapter, given.target, base=given.base)
        print(f"{given.target}: the adapter in the form of {form}")


def _fuse(adapter: Path, target: Path) -> str:
    from wordle_rl.backends import need_mlx

    with need_mlx():
        from wordle_rl.backends.mlx.fuse import fuse_adapter
    return fuse_adapter(adapter, target)


if __name__ == "__main__":
    run_plain(main)
