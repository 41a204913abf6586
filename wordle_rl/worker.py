"""One of the further processes of a run. Only the first process starts it, never a person.

The first line of standard input is its task. It exits when the input ends.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from wordle_rl.build import build_experiment
from wordle_rl.policy.batch import DoesNotFit
from wordle_rl.policy.engine import NotFinite
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.interrupts import ignore_signals
from wordle_rl.training.memory import MemoryFull
from wordle_rl.training.outcome import TrainingFailed

_PATIENCE = 60.0  # seconds for the first process to save its work


def main() -> None:
    ignore_signals()  # the first process decides what becomes of the run
    with open(0, "rb", buffering=0, closefd=False) as lines:
        order = json.loads(lines.readline())
    threading.Thread(target=_exit_with_first_process, daemon=True).start()
    from wordle_rl.backends.torch.backend import follow

    task = order["task"]
    try:
        follow(
            build_experiment(task["config"]), RunFolder(Path(task["folder"])),
            resume=task["resume"], rank=order["rank"], size=order["size"], port=order["port"],
        )  # fmt: skip
    except (TrainingFailed, MemoryFull):
        return  # the first process has the same error and prints it
    except NotFinite as error:
        # The first process has the same weights. It usually finds the error and ends this one.
        time.sleep(_PATIENCE)
        raise SystemExit(f"error: {error}") from None
    except DoesNotFit as error:
        raise SystemExit(f"error: {error}") from None


def _exit_with_first_process() -> None:
    """Wait for the end of standard input, which comes when the first process exits."""
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
