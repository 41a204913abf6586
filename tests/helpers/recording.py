"""Records the first minute of a command in a terminal 80 columns wide, as text: make recording

python -m tests.helpers.recording <file> <command> ... writes all lines that the terminal showed,
also the ones that have left the screen. NO_COLOR lets the boards show marks in place of colours.
After the minute the command gets a Ctrl-C.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import pty
import re
import select
import signal
import struct
import sys
import termios
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyte

from wordle_rl.runs.paths import ROOT

COLUMNS, ROWS = 80, 24
SECONDS = 60.0
_LONGEST = 2000  # lines that are kept
_FOLDER = "/home/me/wordle-rl"  # in place of the folder on this machine
_PATIENCE = 60.0  # seconds that the command has to end after the Ctrl-C

Chunk = tuple[float, bytes]  # seconds since the start, and what was written


def record(command: Sequence[str], seconds: float = SECONDS) -> list[Chunk]:
    """Run a command in a terminal, and end it after some seconds."""
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, size)
        # Without MAKELEVEL and MAKEFLAGS, make in the terminal is no part of a make around it.
        left_out = ("COLUMNS", "LINES", "MAKELEVEL", "MAKEFLAGS", "MFLAGS")
        env = {key: value for key, value in os.environ.items() if key not in left_out}
        env |= {"TERM": "xterm-256color", "NO_COLOR": "1"}
        os.execvpe(command[0], list(command), env)
    begin = time.monotonic()
    chunks = list(_read(terminal, begin, seconds))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGINT)
    for _ in _read(terminal, time.monotonic(), _PATIENCE):
        pass  # a command waits for a terminal that nobody reads
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    return chunks


def _read(terminal: int, begin: float, seconds: float) -> Iterator[Chunk]:
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
    """All lines that the terminal showed, also the ones that have left the screen."""
    # As high as all lines together, since nothing that a run prints depends on the height.
    screen = pyte.Screen(columns, _LONGEST)
    stream = pyte.ByteStream(screen)
    for _, written in chunks:
        stream.feed(written)
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")


def describe_processor() -> str:
    """How many cores of which processor this machine has, as Linux names it."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", info.read_text()) if info.is_file() else None
    return f"{os.cpu_count()} cores, {named[1] if named else platform.processor()}"


def main() -> None:
    file, *command = sys.argv[1:]
    others = os.getloadavg()[0]
    lines = [line.replace(str(ROOT), _FOLDER) for line in shown(record(command))]
    note = (
        f"The first {SECONDS:.0f} seconds of {' '.join(command)}, in a terminal of {COLUMNS} "
        f"columns without colours. Processor: {describe_processor()}, on which "
        f"{others:.1f} other programs wanted a core. The project's folder is named {_FOLDER}."
    )
    lines = [f"$ {' '.join(command)}", *lines]
    Path(file).write_text("\n".join([*textwrap.wrap(note, COLUMNS), "", *lines]) + "\n", "utf-8")
    print(file)


if __name__ == "__main__":
    main()
