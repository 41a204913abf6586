"""Recognises a full disk, and reports it in one line that names the file.

Libraries written in Rust report it in their own words. A disk quota and the limit on the size of a
file (ulimit -f) count as a full disk.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wordle_rl.runs.paths import TRAIN

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RUST = re.compile(r"\(os error (\d+)\)")


class DiskFullError(OSError):
    """A file could not be written for want of room; the message is one line that names it."""


def full_disk(error: BaseException | None) -> str | None:
    """The system's words for a full disk when the error or one of its causes is one; else None."""
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if found := _RUST.search(str(error)):
            number = int(found[1])
        if number in _FULL:
            return os.strerror(number)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Raise DiskFullError about this path when a full disk stops the block."""
    try:
        yield
    except Exception as error:
        reason = full_disk(error)
        if reason is None:
            raise
        raise DiskFullError(
            f"{path}: {reason}; make room, then continue with {TRAIN} "
            "resume=<run folder>, or start again: what was saved before is whole"
        ) from error
