"""What the further processes of a run do: follow the first one, and write no files."""

from __future__ import annotations

import os
import sys
import time

from wordle_rl.commands.build import build_experiment
from wordle_rl.policy.batch import DoesNotFit
from wordle_rl.policy.engine import NotFinite
from wordle_rl.runs.errors import fail, user_errors
from wordle_rl.runs.interrupts import ignore_signals
from wordle_rl.runs.launch import Launch
from wordle_rl.training.loop import TrainingFailed
from wordle_rl.training.memory import MemoryFull

_PATIENCE = 60.0  # seconds for the first process to save its work


def follow(launch: Launch, file: str = "") -> None:
    """Join the first process, do its task on another share, and end. Only the first one prints.

    file: where the processes of one machine meet; without it they meet where torchrun says.
    """
    ignore_signals()  # the first process decides what becomes of the run
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    from wordle_rl.backends.torch import backend
    from wordle_rl.backends.torch.processes import ProcessLost, join_processes

    try:
        with user_errors(), join_processes(launch, file) as processes:
            backend.follow(build_experiment, processes)
    except (TrainingFailed, MemoryFull):
        pass  # the first process has the same error and prints it
    except NotFinite as error:
        # The first process has the same weights. It usually finds the error and ends this one.
        time.sleep(_PATIENCE)
        fail(str(error), code=1)
    except (DoesNotFit, ProcessLost) as error:
        fail(f"process {launch.rank}: {error}", code=1)
    raise SystemExit(0)
