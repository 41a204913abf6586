"""Several processes of one machine that train one policy, with torch.distributed between them.

The first process starts the others and tells each its task through its standard input, which stays
open: where it ends, the first is gone, however it died, and so goes the other. Gloo on the CPU,
NCCL on CUDA.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from wordle_rl.runs.interrupts import Interrupts
from wordle_rl.runs.paths import ROOT

T = TypeVar("T")

_HOST = "127.0.0.1"
_PATIENCE = timedelta(days=7)  # of a call with the others; that one died is noticed at once
_GOODBYE = 10.0  # seconds that a process has to end


class TorchProcesses:
    """Implements wordle_rl.runs.processes.Processes on torch's default process group."""

    def __init__(self, rank: int, size: int, store: Any, device: torch.device) -> None:
        """Joins the group that meets at a store, and waits until all others have."""
        self.rank, self.size = rank, size
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        with _patient_with_death():
            dist.all_gather_object(values, value)
        return values

    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        with _patient_with_death():
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                assert work is not None
                work.wait()


@contextmanager
def _patient_with_death() -> Iterator[None]:
    """Leaves time to those who end this process when another one died, and say why."""
    try:
        yield
    except RuntimeError:
        time.sleep(_GOODBYE)
        raise


def meeting_point(port: int, size: int) -> Any:
    """The store at a port where the processes of a run find each other."""
    return _store(port, size, is_master=False)


def _new_meeting_point(size: int) -> Any:
    """The same at a free port, for the first process."""
    # A store that opens its port itself listens on all interfaces, whatever its host is.
    listener = socket.create_server((_HOST, 0))
    port = listener.getsockname()[1]
    return _store(port, size, is_master=True, master_listen_fd=listener.detach())


def _store(port: int, size: int, **more: Any) -> Any:
    # torch documents TCPStore, but does not list it as exported.
    store: Any = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
    return store(_HOST, port, size, wait_for_workers=False, **more)


@contextmanager
def started(
    size: int,
    device: torch.device,
    task: dict[str, Any],
    interrupts: Interrupts,
    died: Callable[[BaseException], None],
) -> Iterator[TorchProcesses]:
    """Start the other size - 1 processes on a task and join them; they end with the block.

    task: keyword arguments of wordle_rl.backends.torch.backend.follow, as JSON can hold them.
    A second signal kills them, also one that hangs. died: called when one of them died, just before
    this process ends.
    """
    # What is gathered is unpickled, so nobody outside the machine shall reach it.
    loopback = "lo" if sys.platform == "linux" else "lo0"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={loopback}")  # without = a prefix
    store = _new_meeting_point(size)
    others: list[subprocess.Popen[bytes]] = []
    over = threading.Event()

    def kill() -> None:
        over.set()
        for other in others:
            _kill(other)

    interrupts.on_second(kill)
    try:
        others.extend(_start() for _ in range(1, size))
        for rank, other in enumerate(others, 1):
            assert other.stdin is not None
            order = {"rank": rank, "size": size, "port": store.port, "task": task}
            other.stdin.write(json.dumps(order).encode() + b"\n")
            other.stdin.flush()
            watched = (rank, other, over, died)
            threading.Thread(target=_watch, args=watched, daemon=True).start()
        yield TorchProcesses(0, size, store, device)
    finally:
        over.set()
        for other in others:
            _end(other)
        if dist.is_initialized():
            dist.destroy_process_group()


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "wordle_rl.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        process_group=0,  # Ctrl-C in a terminal is for the first process alone
    )


def _watch(
    rank: int,
    other: subprocess.Popen[bytes],
    over: threading.Event,
    died: Callable[[BaseException], None],
) -> None:
    """End this process when another one died: waiting for it would never end."""
    code = other.wait()
    if code and not over.is_set():
        told = f"process {rank} of the run ended with exit code {code}"
        os.write(2, f"\nerror: {told}, so the run stops\n".encode())
        try:
            died(ChildProcessError(told))
        finally:
            os._exit(1)  # checkpoints survive that at any moment


def _end(other: subprocess.Popen[bytes]) -> None:
    assert other.stdin is not None
    other.stdin.close()
    try:
        other.wait(_GOODBYE)
    except subprocess.TimeoutExpired:
        _kill(other)
        other.wait()


def _kill(other: subprocess.Popen[bytes]) -> None:
    """With whatever it started; a process that is stopped dies of nothing else."""
    if other.poll() is None:
        with suppress(ProcessLookupError):  # it ended just now
            os.killpg(other.pid, signal.SIGKILL)
