"""What a run was made with: versions, platform and git revision, for its manifest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from contextlib import suppress
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
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "versions": versions,
        "git": git_revision(PACKAGE.parent),
    }


def git_revision(folder: Path) -> dict[str, Any] | None:
    """{"revision", "dirty"} of the repository whose root is folder, untracked files included.

    None without git, without a commit, or when folder is only inside another repository, as an
    installed package may be.
    """
    try:
        revision, root = _git(folder, "rev-parse", "HEAD", "--show-toplevel").splitlines()
        if Path(root).resolve() != folder.resolve():
            return None
        return {"revision": revision, "dirty": bool(_git(folder, "status", "--porcelain"))}
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    # Without optional locks, asking for the status never disturbs a git command beside it.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, timeout=10, check=True)
    return os.fsdecode(done.stdout).strip()
