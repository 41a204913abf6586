"""A process beside the first one of a run: python -m wordle_rl.backends.worker, never typed.

Its task is the first line of its standard input, whose end is its own.
"""

from __future__ import annotations

import json
import os
import threading
import time

from wordle_rl.backends.lightning_backend import follow
from wordle_rl.engine import NotFinite
from wordle_rl.memory import MemoryFull
from wordle_rl.outcome import TrainingFailed

_PATIENCE = 60.0  # seconds in which the first process saves what it has


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as lines:
        order = json.loads(lines.readline())
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    try:
        follow(order["rank"], order["size"], order["port"], **order["task"])
    except (TrainingFailed, MemoryFull):
        return  # as in the first process, which says so
    except NotFinite as error:
        # The first process has the same weights: it usually finds out itself, and ends this one.
        time.sleep(_PATIENCE)
        raise SystemExit(f"error: {error}") from None


def _end_with_the_first() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
