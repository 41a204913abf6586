"""What a run was made with: versions, platform and git revision, for its manifest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from wordle_rl.runs.paths import PACKAGE

PACKAGES = (  # whose versions a manifest holds, where they are installed
    *("numpy", "torch", "lightning", "transformers", "tokenizers", "peft", "safetensors"),
    *("mlx", "mlx-lm", "hydra-core", "omegaconf", "optuna", "tensorboard"),
)


def describe_environment() -> dict[str, Any]:
    """Python, platform, processors, package versions and git revision, as a manifest keeps them."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # a backend that is not installed
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "versions": versions,
        "git": git_revision(PACKAGE.parent),
    }


def git_revision(folder: Path) -> dict[str, Any] | None:
    """{"revision", "dirty"} of the repository whose root is folder.

    None without git, without a commit, or when folder is only inside another repository (an
    installed package in somebody's project). dirty counts untracked files that are not ignored.
    """
    found = _git(folder, "rev-parse", "HEAD", "--show-toplevel")
    if found is None or len(found.splitlines()) != 2:
        return None
    revision, root = found.splitlines()
    if Path(root).resolve() != Path(folder).resolve():
        return None
    changes = _git(folder, "status", "--porcelain")
    return {"revision": revision, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    # without optional locks, asking for the status never disturbs a git command beside it
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return os.fsdecode(done.stdout).strip()
