"""Processes of a run as others meet them: whom they listen to, and what ends them together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from tests.helpers.runs import settings
from wordle_rl.backends.torch.processes import join_processes
from wordle_rl.runs.paths import ROOT
from wordle_rl.runs.processes import Launch

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/net/tcp").exists(), reason="finds sockets and processes in /proc"
)


def addresses_of(pid: int) -> set[IPv4Address | IPv6Address]:
    """The addresses at which a process waits for connections, of its TCP sockets."""
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                addresses.add(_address(local.partition(":")[0]))
    return addresses


def _address(words: str) -> IPv4Address | IPv6Address:
    """As the kernel writes it: words of four bytes, each in the processor's order of bytes."""
    size = 8  # hexadecimal digits
    raw = b"".join(
        int(words[i : i + size], 16).to_bytes(4, sys.byteorder) for i in range(0, len(words), size)
    )
    return (IPv4Address if len(raw) == 4 else IPv6Address)(raw)


def test_processes_find_each_other_where_no_other_machine_can_reach_them(tmp_path):
    assert not addresses_of(os.getpid())
    launch = Launch(rank=0, size=1, local_rank=0, local_size=1, address="127.0.0.1", port=0)
    with join_processes(launch, str(tmp_path / "meeting")):
        assert addresses_of(os.getpid()) == {IPv4Address("127.0.0.1")}
    assert not addresses_of(os.getpid())


# -- two processes --------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run that has done a step, and the id of its other process; neither is left behind."""
    args = [*settings(tmp_path, "sft"), "trainer.steps=100000", "backend.devices=2"]
    process = subprocess.Popen(
        [sys.executable, "train.py", *args, f"output_dir={tmp_path / 'runs'}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = 0
    try:
        assert process.stdout is not None
        assert any("step 1/" in line for line in process.stdout), "the run ended before its step"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        [child] = [
            int(pid)
            for pid in children
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        yield process, child
    finally:
        for pid in (process.pid, child):
            if pid and runs(pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def runs(pid: int) -> bool:
    """Whether there is such a process, other than one that is dead and not yet waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow  # in a second, with a child that is no process of a run: test_interrupts.py
def test_a_second_signal_ends_both_though_the_other_hangs(run):
    process, child = run
    os.kill(child, signal.SIGSTOP)
    time.sleep(1)  # the first process waits for the other one by now
    process.send_signal(signal.SIGINT)
    assert any("press Ctrl-C again to quit now" in line for line in process.stderr)
    time.sleep(1)
    assert process.poll() is None, "the first signal must wait for the other process"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    deadline = time.monotonic() + 60
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(child)
