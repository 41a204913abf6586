"""A command in its first second, and without a reader."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT


def stop(command: str, module: str, signum: int) -> tuple[int, str]:
    """Exit code and standard error of a command that gets a signal when it imported a module."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *command.split()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job, which these tests may be part of, ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == module:
                process.send_signal(signum)
                break
        else:
            raise AssertionError(f"{module} was not imported")
        _, err = process.communicate(timeout=60)
    return process.returncode, "".join(
        line for line in err.splitlines(keepends=True) if not line.startswith("import time:")
    )


@pytest.mark.parametrize(
    ("command", "imported", "signum", "code"),
    [
        ("train.py output_dir={} num_generations=1", "omegaconf", signal.SIGINT, 130),
        ("-m wordle_rl report {}", "typer", signal.SIGTERM, 143),
    ],
)
def test_a_signal_in_the_first_second_ends_a_command_without_a_traceback(
    command: str, imported: str, signum: int, code: int, tmp_path: Path
) -> None:
    assert stop(command.format(tmp_path), imported, signum) == (code, "")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_ends_a_command_without_a_word() -> None:
    body = (
        "from wordle_rl.runs.errors import whole_command\n"
        "with whole_command():\n"
        "    while True: print('shown')"  # until the reader has left, however late that is
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(body)} | head -c 5"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (1, b"shown", b"")


def test_a_command_starts_under_a_notebooks_matplotlib_backend() -> None:
    code = "from wordle_rl.runs.interrupts import begin; begin(); import matplotlib"
    env = {**os.environ, "MPLBACKEND": "module://not_installed.backend"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True)


def test_a_system_without_fcntl_gets_one_line_that_names_what_is_needed() -> None:
    prefix = "import runpy, sys; sys.modules['fcntl'] = None; "
    code = f"{prefix}runpy.run_path(sys.argv[1], run_name='__main__')"
    for script in ("train.py", "eval.py", "wordle_rl/__main__.py"):
        result = subprocess.run([sys.executable, "-c", code, script], cwd=ROOT, capture_output=True)
        [line] = result.stderr.decode().splitlines()
        assert result.returncode and "WSL" in line
