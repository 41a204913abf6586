"""Records what a command shows on a terminal 80 columns wide: make recording

python -m tests.helpers.recording <file> [<command> ...] writes the text of the first minute: every
line as it was when it left the screen or when the minute was over, colours left out. Then the
command gets a Ctrl-C.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence

import pyte

COLUMNS, ROWS = 80, 24
SECONDS = 60.0
_LONGEST = 2000  # lines that are kept
_PATIENCE = 60.0  # seconds that the command has to end after the Ctrl-C

Chunk = tuple[float, bytes]  # seconds since the start, and what was written


def record(command: Sequence[str], seconds: float = SECONDS) -> list[Chunk]:
    """Run a command in a terminal, and end it after some seconds."""
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, size)
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        # Without its variables, make in the terminal is no part of a make around it.
        env = {key: value for key, value in env.items() if not key.startswith(("MAKE", "MFLAGS"))}
        os.execvpe(command[0], list(command), {**env, "TERM": "xterm-256color"})
    begin = time.monotonic()
    chunks = list(_read(terminal, begin, seconds))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGINT)
    for _ in _read(terminal, time.monotonic(), _PATIENCE):
        pass  # a terminal that nobody reads would stop the command
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    return chunks


def _read(terminal: int, begin: float, seconds: float):
    """What the command writes until it ends or the time is over."""
    while (left := begin + seconds - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                written = os.read(terminal, 65536)
            except OSError:  # on Linux, the end
                return
            if not written:
                return
            yield time.monotonic() - begin, written


def shown(chunks: Sequence[Chunk], columns: int = COLUMNS) -> list[str]:
    """The lines that the terminal showed, those that left the screen included."""
    # As high as all lines together: nothing that a run prints depends on the height.
    screen = pyte.Screen(columns, _LONGEST)
    stream = pyte.ByteStream(screen)
    for _, written in chunks:
        stream.feed(written)
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")
