"""A run of a study, started before its trial: imports its libraries, then waits for its arguments.

Only a study starts it, never a person. The first line of standard input is its order, and without
one it exits when the input ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress

from wordle_rl import cli
from wordle_rl.runs import start
from wordle_rl.runs.paths import TRAIN, train_command

# What a run imports late. Every backend uses torch's.
_LATE = ("hydra", "wordle_rl.train", "wordle_rl.backends.torch.backend")


def main() -> None:
    start.begin()
    cli.shorten_spins()
    for module in _LATE:
        with suppress(ImportError):  # the run says what is missing
            importlib.import_module(module)
    with open(0, "rb", buffering=0, closefd=False) as lines:
        line = lines.readline()
    if not line:
        return
    order = json.loads(line)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    # As if the command had been started with these arguments.
    sys.orig_argv = order["arguments"]
    sys.argv = [TRAIN.removeprefix("python "), *order["arguments"][len(train_command()) :]]
    from wordle_rl.hydra_commands import train

    train()


if __name__ == "__main__":
    main()
