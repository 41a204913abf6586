"""Files that a user names: ordinary files of UTF-8 text, small enough to be read whole."""

from __future__ import annotations

import stat
from pathlib import Path

MOST_BYTES = 64 * 2**20
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark.

    Raises ValueError in one line that begins with the path. Nothing but an ordinary file is opened:
    a pipe would wait for its writer, and a device may never end.
    """
    try:
        about = path.stat()
        if kind := _KINDS.get(stat.S_IFMT(about.st_mode)):
            raise ValueError(f"{path}: is {kind}, not a file")
        if about.st_size > MOST_BYTES:
            raise ValueError(
                f"{path}: has {about.st_size / 2**20:,.0f} MB, "
                f"and at most {MOST_BYTES // 2**20} MB are read"
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        row = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path} row {row}: not UTF-8 text") from None
