"""Keeps a child process: it ends when its parent does, however that ends.

python -I keeper.py SECONDS COMMAND...: runs the command until it ends by itself, or until standard
input closes, which happens when the parent dies or lets go. Then the command is asked to stop
(SIGTERM), and all of its process group is killed after SECONDS. Imports nothing of the project.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    patience, command = float(sys.argv[1]), sys.argv[2:]
    # Ctrl-C in the terminal is the parent's to handle; this is a session of its own anyway.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: None)  # unlike SIG_IGN, a child does not inherit it
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_stop_with_parent, args=(child, patience), daemon=True).start()
    code = child.wait()
    os._exit(code if code >= 0 else 128 - code)


def _stop_with_parent(child: subprocess.Popen[bytes], patience: float) -> None:
    while os.read(0, 1024):
        pass
    child.terminate()
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
