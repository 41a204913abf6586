"""A terminal as a person sees it."""

import os
import pty
import subprocess
import termios
from collections.abc import Sequence
from contextlib import suppress

import pyte


def watch(command: Sequence[str], columns: int) -> list[list[str]]:
    """Every screen that a command makes on a terminal, as lines."""
    screen, (ours, theirs), screens = pyte.Screen(columns, 24), pty.openpty(), []
    termios.tcsetwinsize(theirs, (24, columns))
    stream = pyte.ByteStream(screen)
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        with suppress(OSError):  # the terminal was closed
            while data := os.read(ours, 65536):
                stream.feed(data)
                screens.append([line.rstrip() for line in screen.display])
    os.close(ours)
    return screens
