"""Ends processes with all that they started."""

from contextlib import suppress

import psutil


def kill_tree(pid: int) -> None:
    """Kill a process and what it started with SIGKILL."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (*parent.children(recursive=True), parent):
            with suppress(psutil.NoSuchProcess):
                process.kill()
