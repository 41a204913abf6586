"""A command in its first second and in unusual places: signals, closed streams, old terminals."""

from __future__ import annotations

import codecs
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.configs import composed
from wordle_rl.build import resolve
from wordle_rl.cli import quoted
from wordle_rl.runs import start
from wordle_rl.runs.environment import git_revision
from wordle_rl.runs.folder import RunFolder, RunFolderError
from wordle_rl.runs.paths import ROOT

COMMANDS = {
    "train.py": "train.py output_dir={} num_generations=1",
    "train.py -m": "train.py -m sweep=gen_count sweep.folder={}",
    "eval.py": "eval.py output_dir={} player=random",
    "entropy": "-m wordle_rl.openers --csv {}/openers.csv",
    "study": "-m wordle_rl.study {}",
    "report": "-m wordle_rl report {}",
    "convert": "-m wordle_rl.convert {}/a {}/b",
}


def stopped(command: str, imported: str, signum: int) -> tuple[int, str]:
    """Exit code and standard error of a command that gets a signal when it imported a module."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *command.split()],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell's background job, which these tests may be part of, ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
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


@pytest.mark.parametrize(
    ("imported", "signum", "code"),
    [
        ("numpy", signal.SIGINT, 130),
        ("wordle_rl.build", signal.SIGTERM, 143),
        pytest.param("hydra._internal", signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param("wordle_rl.build", signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_so_does_a_signal_while_the_config_is_composed_and_checked(
    imported: str, signum: int, code: int, tmp_path: Path
) -> None:
    assert stopped(f"eval.py output_dir={tmp_path}", imported, signum) == (code, "")
    assert not list(tmp_path.iterdir())


BODY = """
import os, sys
from wordle_rl.runs import start
if __name__ == "__main__":
    start.begin()
from wordle_rl.runs.errors import run_plain
def main():
{}
run_plain(main)
"""


def shell(body: str, streams: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """What a command whose main function has this body does in a shell with these redirections."""
    indented = "\n".join("    " + line for line in body.splitlines())
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(BODY.format(indented))} {streams}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
    )  # fmt: skip


FULL = b"error: the standard output cannot be written (No space left on device)\n"
STREAMS = {  # redirections: exit code, standard output, standard error
    ">&-": (0, b"", b""),
    "2>&-": (0, b"shown\n", b""),
    "<&- >&- 2>&-": (0, b"", b""),
    ">/dev/full": (2, b"", FULL),
    ">/dev/full 2>/dev/full": (2, b"", b""),
    "| true": (1, b"", b""),
    "| head -c 5": (1, b"shown", b""),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("streams", STREAMS)
def test_output_that_nobody_can_read_ends_in_one_line_at_most(
    streams: str, unbuffered: str
) -> None:
    wait = "import time; time.sleep(0.3); " * ("|" in streams)  # until the reader has left
    body = f"print('shown', flush=True); {wait}print('shown', end='')" if wait else "print('shown')"
    done = shell(body, streams, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stdout, done.stderr) == STREAMS[streams]


def test_a_reader_that_leaves_is_noticed_though_another_thread_wrote_first() -> None:
    body = """import threading, time
time.sleep(0.3)
other = threading.Thread(target=print, args=("so far",), kwargs={"flush": True})
other.start(), other.join()
print("more", flush=True)
os.write(2, b"still here")"""
    done = shell(body, "| true")
    assert (done.returncode, done.stderr) == (1, b"")


def test_with_closed_output_no_file_takes_its_place(tmp_path: Path) -> None:
    file = tmp_path / "file"
    body = f"file = open({str(file)!r}, 'w')\nos.write(1, b'lost')\nfile.write(str(file.fileno()))"
    assert shell(body, "<&- >&- 2>&-").returncode == 0
    assert int(file.read_text()) > 2


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    codecs.register_error("nearest", start.nearest)


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", b"fits v, +-0.5, abc... ### |, ???"),
        ("latin-1", b"fits v, \xb10.5, abc... ### |, ?\xe9?"),
        ("utf-8", "fits ✓, ±0.5, abc… ███ ▏, 中é🟩".encode()),
    ],
)
def test_a_terminal_gets_marks_that_it_can_show(encoding: str, shown: bytes) -> None:
    assert "fits ✓, ±0.5, abc… ███ ▏, 中é🟩".encode(encoding, "nearest") == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_file_name_of_other_bytes_is_shown_as_it_is(encoding: str) -> None:
    assert os.fsdecode(b"caf\xe9").encode(encoding, "nearest") == b"caf\xe9"


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.slow),
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["latin-1", "ascii"],
)
def test_an_old_terminal_shows_an_evaluation_and_files_stay_utf_8(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = f"eval.py player=random_consistent limit=3 compare=false output_dir={tmp_path}"
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, capture_output=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"vvvvv" in done.stdout and b"#" in done.stdout
    [folder] = tmp_path.iterdir()
    games = (folder / "games.jsonl").read_text(encoding="utf-8")
    assert "✓✓✓✓✓" in json.loads(games.splitlines()[0])["feedback"]


def bytes_folder(root: Path) -> Path:
    folder = Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9"))
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", ["josé", os.fsdecode(b"caf\xe9"), "élan=1", "中文"])
def test_a_path_beyond_ascii_needs_no_quotes(name: str) -> None:
    assert quoted(f"output_dir=/tmp/{name}") == f"output_dir='/tmp/{name}'"
    assert resolve(composed(f"output_dir=/tmp/{name}"))["output_dir"] == f"/tmp/{name}"
    for given in (f"name='{name} a'", f"seed={name},1"):  # the user's own quotes, and a study's
        assert quoted(given) == given


def test_a_run_folder_of_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    folder = bytes_folder(tmp_path)
    with pytest.raises(RunFolderError, match="a run folder needs a path that is UTF-8 text"):
        RunFolder.create(folder, "name")
    with pytest.raises(RunFolderError, match="a run folder needs a path that is UTF-8 text"):
        RunFolder.open(folder)
    assert not list(folder.iterdir())


def test_the_git_revision_of_a_project_in_such_a_folder_is_found(tmp_path: Path) -> None:
    folder = bytes_folder(tmp_path)
    for line in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m a"):
        subprocess.run(["git", "-C", folder, *line.split()], check=True)
    found = git_revision(folder)
    assert found is not None and len(found["revision"]) == 40
