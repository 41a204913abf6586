"""One of the further processes of a run: it follows what the first one does, and writes no files.

The first process starts it, which closes its standard input at its end. Or torchrun starts it on
any machine, and then it joins the others by itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, NoReturn

from wordle_rl.commands.build import build_experiment
from wordle_rl.policy.batch import DoesNotFit
from wordle_rl.policy.engine import NotFinite
from wordle_rl.runs.errors import fail
from wordle_rl.runs.interrupts import ignore_signals
from wordle_rl.runs.launch import Launch, read_launch
from wordle_rl.training.loop import TrainingFailed
from wordle_rl.training.memory import MemoryFull

_PATIENCE = 60.0  # seconds for the first process to save its work


def main() -> None:
    """Follow the process that started this one."""
    ignore_signals()  # the first process decides what becomes of the run
    threading.Thread(target=_exit_with_first_process, daemon=True).start()
    from wordle_rl.backends.torch.processes import follow_first

    launch = read_launch()
    assert launch is not None
    with follow_first(launch) as processes:
        _work(processes)


def follow_launch(launch: Launch) -> NoReturn:
    """Follow the first of the processes that torchrun started. Only that one prints."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    from wordle_rl.backends.torch.meeting import NotAllCame
    from wordle_rl.backends.torch.processes import ProcessLost, join_processes

    def lost(reason: str) -> None:
        os.write(2, f"\nerror: {reason}, so process {launch.rank} ends\n".encode())

    try:
        with join_processes(launch, stop=lambda signum: None, lost=lost) as processes:
            _work(processes)
    except (NotAllCame, ProcessLost) as error:
        fail(str(error), code=1)
    raise SystemExit(0)


def _work(processes: Any) -> None:
    from wordle_rl.backends.torch.backend import follow

    try:
        follow(build_experiment, processes)
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
