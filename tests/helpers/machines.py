"""Two machines in one: network namespaces with a cable between them. Making them needs root."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

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
        self._started: list[subprocess.Popen[str]] = []

    def torchrun(
        self, node: int, *arguments: str, own_disk: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start train.py by torchrun on a machine, in one process.

        own_disk: a folder whose content this machine alone has.
        """
        mount = ["unshare", "--mount", "sh", "-c", _MOUNT, str(own_disk)] if own_disk else []
        command = [
            "ip", "netns", "exec", self._names[node], *mount,
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
            "--nproc-per-node=1", f"--node-rank={node}", f"--master-addr={ADDRESSES[0]}",
            f"--master-port={_PORT}", "train.py", *arguments,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=ROOT, env=without_launch(environment()), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
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


def kill_tree(pid: int) -> None:
    """Kill a process and what it started with SIGKILL."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for each in (*parent.children(recursive=True), parent):
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
