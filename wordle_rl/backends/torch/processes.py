"""Several processes of one machine that train one policy through torch.distributed.

The first process starts the others and writes each one's task to its standard input, which stays
open. When the first process dies, however it dies, that input ends, and so do the others. They
communicate through Gloo on the CPU and NCCL on CUDA.
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
from wordle_rl.runs.paths import environment

T = TypeVar("T")

_HOST = "127.0.0.1"
_PATIENCE = timedelta(days=7)  # timeout of a collective; a death is noticed at once
_GOODBYE = 10.0  # seconds in which a process should end


class TorchProcesses:
    """Implements wordle_rl.runs.processes.Processes on torch's default process group."""

    def __init__(self, rank: int, size: int, store: Any, device: torch.device) -> None:
        """Join the group at a store, and wait until all others have joined."""
        self.rank, self.size = rank, size
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        with _wait_on_failure():
            dist.all_gather_object(values, value)
        return values

    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        with _wait_on_failure():
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                assert work is not None
                work.wait()


@contextmanager
def _wait_on_failure() -> Iterator[None]:
    """After an error, give the watching thread time to end this process and say why."""
    try:
        yield
    except RuntimeError:
        time.sleep(_GOODBYE)
        raise


def connect_store(port: int, size: int) -> Any:
    """Connect to the store at a port, where the processes of a run find each other."""
    return _open_store(port, size, is_master=False)


def _create_store(size: int) -> Any:
    """Create the store at a free port, for the first process."""
    # A store that opens its port itself listens on all interfaces, whatever host it was given.
    listener = socket.create_server((_HOST, 0))
    port = listener.getsockname()[1]
    return _open_store(port, size, is_master=True, master_listen_fd=listener.detach())


def _open_store(port: int, size: int, **more: Any) -> Any:
    # torch documents TCPStore but does not list it among its exports.
    store: Any = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
    return store(_HOST, port, size, wait_for_workers=False, **more)


@contextmanager
def start_processes(
    size: int,
    device: torch.device,
    task: dict[str, Any],
    interrupts: Interrupts,
    died: Callable[[BaseException], None],
) -> Iterator[TorchProcesses]:
    """Start the other size - 1 processes on a task and join them. They end with the block.

    task: what wordle_rl.worker reads, as JSON can hold it. died: called when one of the processes
    died, just before this one ends. A second signal kills them, even if one hangs.
    """
    # Gathered values are unpickled, so nothing outside the machine may connect.
    loopback = "lo" if sys.platform == "linux" else "lo0"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={loopback}")  # without = a prefix
    store = _create_store(size)
    others: list[subprocess.Popen[bytes]] = []
    over = threading.Event()

    def kill() -> None:
        over.set()
        for other in others:
            _kill(other)

    interrupts.on_second(kill)
    try:
        others.extend(_start_worker() for _ in range(1, size))
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


def _start_worker() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "wordle_rl.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment(),
        process_group=0,  # Ctrl-C in a terminal reaches the first process only
    )


def _watch(
    rank: int,
    other: subprocess.Popen[bytes],
    over: threading.Event,
    died: Callable[[BaseException], None],
) -> None:
    """End this process when another one dies, because it would wait for it for ever."""
    code = other.wait()
    if code and not over.is_set():
        reason = f"process {rank} of the run ended with exit code {code}"
        os.write(2, f"\nerror: {reason}, so the run stops\n".encode())
        try:
            died(ChildProcessError(reason))
        finally:
            os._exit(1)  # safe at any moment: checkpoints survive it


def _end(other: subprocess.Popen[bytes]) -> None:
    """Close a process's input, which ends it, and kill it if it does not end in time."""
    assert other.stdin is not None
    other.stdin.close()
    try:
        other.wait(_GOODBYE)
    except subprocess.TimeoutExpired:
        _kill(other)
        other.wait()


def _kill(other: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children with SIGKILL, which works on stopped processes too."""
    if other.poll() is None:
        with suppress(ProcessLookupError):  # it ended just now
            os.killpg(other.pid, signal.SIGKILL)
