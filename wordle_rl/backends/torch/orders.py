"""What the first process of a run tells the others, and how all learn whether each is ready."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from wordle_rl.backends.torch.processes import TorchProcesses
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError

T = TypeVar("T")

_SIGN = ".shared"  # file by which the other processes know the run folder
_PATIENCE = 10.0  # seconds until a shared disk shows a file everywhere


def lead(processes: TorchProcesses, task: dict[str, Any], folder: RunFolder) -> None:
    """Give the other processes their task, and wait until each is ready.

    Raises ConfigError with the reason of the first one that cannot do it.
    """
    sign, word = folder.path / _SIGN, secrets.token_hex(8)
    sign.write_text(word)
    try:
        processes.gather({**task, "folder": str(folder.path), "word": word})
        _agree(processes, None)
    finally:
        sign.unlink()


def obey(
    processes: TorchProcesses, prepare: Callable[[dict[str, Any]], T]
) -> tuple[T, RunFolder, bool]:
    """Take the task from the first process and prepare for it.

    Returns what prepare() made, the run folder, and whether the run is resumed. Ends the process
    when some process cannot do its task. The first one says why.
    """
    task: Any = processes.gather(None)[0]
    folder = RunFolder(Path(task["folder"]))
    reason, made = None, None
    try:
        _check_shared(folder.path, task["word"])
        made = prepare(task)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        reason = str(error)
    try:
        _agree(processes, reason)
    except ConfigError:
        raise SystemExit(2) from None
    assert made is not None
    return made, folder, task["resume"]


def _agree(processes: TorchProcesses, reason: str | None) -> None:
    """Raise ConfigError in all processes if one has a reason not to go on."""
    for rank, (host, found) in enumerate(processes.gather((socket.gethostname(), reason))):
        if found is not None:
            raise ConfigError(f"process {rank} on {host}: {found}")


def _check_shared(folder: Path, word: str) -> None:
    """Raise ConfigError unless this process sees the folder that the first one writes to."""
    end = time.monotonic() + _PATIENCE
    while True:
        with suppress(OSError):
            os.listdir(folder)  # makes a network file system look again
            if (folder / _SIGN).read_text() == word:
                return
        if time.monotonic() > end:
            raise ConfigError(
                f"the run folder {folder} is another one here, or missing: let output_dir= name a "
                "folder that all machines share under the same path"
            )
        time.sleep(_PATIENCE / 50)
