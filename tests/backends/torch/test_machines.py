"""torchrun on two machines, which are two network namespaces of this one: `pytest -m several`.

They train what backend.devices=2 trains, and lose nothing when one of them ends.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.helpers.processes import kill_tree
from tests.helpers.runs import assert_equal_runs, settings
from wordle_rl.runs.paths import ROOT, environment
from wordle_rl.runs.processes import without_launch

ADDRESSES = ("10.77.0.1", "10.77.0.2")
_PORT = 29517
_MOUNT = 'mount -t tmpfs none "$0" && exec "$@"'


def find_obstacle() -> str | None:
    """Why this machine cannot play two. None if it can."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return "needs root, and the command ip (iproute2)"
    name = f"wordle-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    _ip("netns", "del", name)
    return None


class Machines:
    """Two namespaces, 0 and 1. Commands started in them are killed at the end."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._processes: list[subprocess.Popen[str]] = []

    def torchrun(
        self, node: int, *arguments: str, own_disk: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start train.py by torchrun on a machine, in one process.

        own_disk: a folder whose content this machine alone has.
        """
        mount = ["unshare", "--mount", "sh", "-c", _MOUNT, str(own_disk)] if own_disk else []
        command = [
            "ip",
            "netns",
            "exec",
            self._names[node],
            *mount,
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc-per-node=1",
            f"--node-rank={node}",
            f"--master-addr={ADDRESSES[0]}",
            f"--master-port={_PORT}",
            "train.py",
            *arguments,
        ]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=without_launch(environment()),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            kill_tree(process.pid)
            process.communicate()


@contextmanager
def two_machines() -> Iterator[Machines]:
    names = [f"wordle-{os.getpid()}-{node}" for node in (0, 1)]
    cable = f"wrl{os.getpid()}"[:15]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            folder = Path("/etc/netns") / name
            folder.mkdir(parents=True)
            stack.callback(shutil.rmtree, folder)
            # Its own name leads to the loopback interface only, as on many Linux systems.
            hosts = f"127.0.0.1 localhost\n127.0.1.1 {os.uname().nodename}\n"
            (folder / "hosts").write_text(hosts)
        ends = ("netns", names[0], "type", "veth", "peer", "name", cable, "netns", names[1])
        _ip("link", "add", cable, *ends)
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            for device in ("lo", cable):
                _ip("-n", name, "link", "set", device, "up")
        machines = Machines(names)
        stack.callback(machines.close)
        yield machines


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


OBSTACLE = find_obstacle()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.several,
    pytest.mark.skipif(OBSTACLE is not None, reason=str(OBSTACLE)),
]
SOON = 60  # seconds in which the end of one machine must end the other


@pytest.fixture
def machines() -> Iterator[Machines]:
    with two_machines() as machines:
        yield machines


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "runs").mkdir()
    return [
        *settings(tmp_path, "two updates with muon"),
        "trainer.steps=3",
        f"output_dir={tmp_path / 'runs'}",
    ]


def outputs(*processes: subprocess.Popen[str], timeout: float = SOON) -> list[str]:
    """What each process printed until its end, which must come within so many seconds."""
    return [process.communicate(timeout=timeout)[0] for process in processes]


def the_run(folder: Path) -> Path:
    [run] = (folder / "runs").iterdir()
    return run


def status(run: Path) -> str:
    return json.loads((run / "manifest.json").read_text())["status"]


def wait_for_step(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "step 2/" in line:
            break
    else:
        pytest.fail("the run ended before its second step:\n" + "".join(lines))


def begin(machines: Machines, given: list[str]) -> tuple[subprocess.Popen[str], ...]:
    """Both machines in a long run, after its second step. What the second prints is read later."""
    pair = tuple(machines.torchrun(node, *given, "trainer.steps=100000") for node in (0, 1))
    wait_for_step(pair[0])
    return pair


@pytest.mark.timeout(1200)
def test_two_machines_train_what_two_processes_of_one_machine_do(machines, given, tmp_path):
    texts = outputs(*(machines.torchrun(node, *given) for node in (0, 1)), timeout=600)
    run = the_run(tmp_path)
    assert status(run) == "finished" and f"run folder: {run}" in texts[0]
    assert "run folder" not in texts[1] and "step" not in texts[1], "only the first one speaks"
    run.rename(tmp_path / "several")
    command = [sys.executable, "train.py", *given, "backend.devices=2"]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True)
    assert_equal_runs(tmp_path / "several", the_run(tmp_path))


@pytest.mark.parametrize("node", [0, 1])
def test_a_machine_that_dies_ends_the_other_and_the_run_resumes(node, machines, given, tmp_path):
    pair = begin(machines, given)
    kill_tree(pair[node].pid)
    [text] = outputs(pair[1 - node])
    assert "another process of the run was lost" in text, text
    run = the_run(tmp_path)
    if node:
        assert status(run) == "failed" and f"resume={run}" in text
    # The other number of machines, because any that shares the groups alike will do.
    command = [sys.executable, "train.py", f"resume={run}", "trainer.steps=5"]
    result = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert status(run) == "finished"


def test_a_folder_that_is_not_shared_is_refused_before_anything_trains(machines, given, tmp_path):
    pair = [machines.torchrun(0, *given), machines.torchrun(1, *given, own_disk=tmp_path / "runs")]
    texts = outputs(*pair)
    assert "let output_dir= name a folder that all machines share" in texts[1], texts
