"""The folder through which adapters reach the servers. Each version has a folder of its own.

A server may still read the previous version, so the two newest are kept.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from wordle_rl.backends.vllm.pool import Adapter
from wordle_rl.runs.instantiate import ConfigError

_KEPT = 2  # versions


def check_writable(root: Path) -> None:
    """Raise ConfigError unless new folders can be made in root, which may not exist yet."""
    found = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not found.is_dir():
        raise ConfigError(f"vllm.folder must be a folder, but {found} is a file")
    try:
        os.rmdir(tempfile.mkdtemp(prefix="wordle-", dir=found))
    except OSError as error:
        raise ConfigError(f"vllm.folder={root} cannot be written: {error.strerror}") from None


class AdapterFolder:
    """Writes a run's adapters, all under a name that no other run has."""

    def __init__(self, root: Path, there: str | None = None) -> None:
        """there: the path of root at the servers. None: the same path."""
        self.name = f"wordle-{secrets.token_hex(6)}"
        self._here = root.resolve() / self.name
        self._there = PurePosixPath(there or root.resolve().as_posix()) / self.name
        self._written: list[Path] = []
        self._made_root = not root.exists()
        self._here.mkdir(parents=True)

    def write(self, save: Callable[[Path], None]) -> Adapter:
        """Write the next version. save: writes the adapter into an empty folder."""
        number = f"{len(self._written):06d}"
        unfinished, place = self._here / f"{number}.unfinished", self._here / number
        unfinished.mkdir()
        save(unfinished)
        os.replace(unfinished, place)
        self._written.append(place)
        for old in self._written[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return Adapter(name=self.name, path=str(self._there / number))

    def remove(self) -> None:
        shutil.rmtree(self._here, ignore_errors=True)
        if self._made_root:
            with suppress(OSError):  # another run uses it by now
                self._here.parent.rmdir()
