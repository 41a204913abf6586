"""A command in its first second, and in an unusual place: signals, closed streams, old terminals."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_configs import ROOT

from wordle_rl import start

COMMANDS = {
    "train.py": "train.py output_dir={} num_generations=1",
    "train.py -m": "train.py -m sweep=gen_count sweep.folder={}",
    "eval.py": "eval.py output_dir={} player=random",
    "entropy": "-m wordle_rl.entropy --csv {}/openers.csv",
    "study": "-m wordle_rl.study {}",
    "plot_wins": "-m wordle_rl.plot_wins {}",
    "convert": "-m wordle_rl.convert {}/a {}/b",
}


def stopped(command: str, imported: str, signum: int) -> tuple[int, str]:
    """Exit code and standard error of a command that gets a signal once it has imported a module."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *command.split()],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == imported:
                process.send_signal(signum)
                break
        else:
            raise AssertionError(f"{imported} was not imported")
        _, told = process.communicate(timeout=60)
    return process.returncode, "".join(
        line for line in told.splitlines(keepends=True) if not line.startswith("import time:")
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_in_the_first_second_ends_a_command_without_a_traceback(
    command: str, tmp_path: Path
) -> None:
    line = COMMANDS[command].replace("{}", str(tmp_path))
    first = "omegaconf" if ".py" in command else "argparse"
    assert stopped(line, first, signal.SIGINT) == (130, "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("imported", ["hydra._internal", "numpy", "wordle_rl.build"])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_so_does_a_signal_while_the_config_is_composed_and_checked(
    imported: str, signum: int, code: int, tmp_path: Path
) -> None:
    assert stopped(f"eval.py output_dir={tmp_path}", imported, signum) == (code, "")
    assert not list(tmp_path.iterdir())
