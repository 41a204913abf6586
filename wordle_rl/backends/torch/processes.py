"""Several processes that train one policy through torch.distributed, on one machine or several.

With backend.devices above 1, the first process starts the others and holds their standard input
open. When it dies, however it dies, that input ends, and so do they. With torchrun, each process
watches the others through the store where they met. In both cases the first process then sends the
others their task. They communicate through Gloo on the CPU and NCCL on CUDA.
"""

from __future__ import annotations

import os
import signal
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

from wordle_rl.backends.torch import exchange
from wordle_rl.backends.torch.meeting import (
    choose_interface,
    connect_store,
    create_store,
    open_store,
    wait_for_all,
)
from wordle_rl.backends.torch.watch import Watch
from wordle_rl.runs.interrupts import Interrupts, ignore_signals
from wordle_rl.runs.launch import Launch
from wordle_rl.runs.paths import environment

T = TypeVar("T")

_HOST = "127.0.0.1"
_PATIENCE = timedelta(days=7)  # timeout of a collective; a death is noticed at once
_GOODBYE = 10.0  # seconds in which a process should end


class ProcessLost(RuntimeError):
    """Another process of the run is gone, so this one cannot continue."""


class TorchProcesses:
    """Implements wordle_rl.runs.processes.Processes on torch's default process group."""

    def __init__(self, launch: Launch, store: Any, watch: Watch | None = None) -> None:
        """Join the group at a store, and wait until all others have joined.

        watch: knows which process is gone after an error. Without it, a thread ends this process.
        """
        self.rank, self.size = launch.rank, launch.size
        self._watch = watch
        # Called again where a library has replaced the handlers of signals.
        self.install_signals = ignore_signals if watch is None else watch.pass_on_signals
        self._group: Any = None  # of tensors on a GPU
        # torch documents PrefixStore but does not list it among its exports.
        part: Any = dist.PrefixStore  # pyright: ignore[reportPrivateImportUsage]
        dist.init_process_group(
            "gloo",
            store=part("group", store),
            rank=self.rank,
            world_size=self.size,
            timeout=_PATIENCE,
        )

    def use_device(self, device: torch.device) -> None:
        """Add up tensors on this device from now on. All processes call it together."""
        if device.type == "cuda":
            torch.cuda.set_device(device)
            self._group = dist.new_group(backend="nccl", timeout=_PATIENCE)

    def gather(self, value: T) -> list[T]:
        own = torch.frombuffer(bytearray(exchange.write(value)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self._explain_failure():
            dist.all_gather(sizes, torch.tensor([len(own)]))
            room = max(int(size) for size in sizes)
            parts = [torch.empty(room, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(parts, torch.nn.functional.pad(own, (0, room - len(own))))
        return [
            exchange.read(part[: int(size)].numpy().tobytes())
            for part, size in zip(parts, sizes, strict=True)
        ]

    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        with self._explain_failure():
            for work in [dist.all_reduce(t, group=self._group, async_op=True) for t in tensors]:
                assert work is not None
                work.wait()

    @contextmanager
    def _explain_failure(self) -> Iterator[None]:
        """After an error, say who is gone, or leave that to the thread that ends this process."""
        try:
            yield
        except RuntimeError:
            if self._watch is not None:
                raise ProcessLost(self._watch.find_lost()) from None
            time.sleep(_GOODBYE)
            raise


@contextmanager
def join_processes(
    launch: Launch, *, stop: Callable[[int], None], lost: Callable[[str], None]
) -> Iterator[TorchProcesses]:
    """Join the processes that torchrun started. Raises NotAllCame when some do not come.

    stop, lost: see Watch. The other processes pass their signals on to the first.
    """
    choose_interface(launch)
    store = open_store(launch)
    hosts = wait_for_all(store, launch)
    watch = Watch(connect_store(launch), launch, hosts, stop=stop, lost=lost)
    if launch.rank:
        watch.pass_on_signals()
    code = 1
    try:
        yield TorchProcesses(launch, store, watch)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        raise
    finally:
        watch.leave(code)
        if code == 0:
            dist.destroy_process_group()


@contextmanager
def start_processes(
    size: int, interrupts: Interrupts, died: Callable[[BaseException], None]
) -> Iterator[TorchProcesses]:
    """Start the other size - 1 processes on this machine and join them. They end with the block.

    died: called when one of the processes died, just before this one ends. A second signal kills
    them, even if one hangs.
    """
    store = create_store(_HOST, size)
    others: list[subprocess.Popen[bytes]] = []
    over = threading.Event()

    def kill() -> None:
        over.set()
        for other in others:
            _kill(other)

    interrupts.on_second(kill)
    try:
        launches = [
            Launch(
                rank=rank, size=size, local_rank=rank, local_size=size, address=_HOST,
                port=store.port,
            )
            for rank in range(size)
        ]  # fmt: skip
        choose_interface(launches[0])
        others.extend(map(_start_worker, launches[1:]))
        for rank, other in enumerate(others, 1):
            watched = (rank, other, over, died)
            threading.Thread(target=_watch, args=watched, daemon=True).start()
        yield TorchProcesses(launches[0], store)
    finally:
        over.set()
        for other in others:
            _end(other)
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def follow_first(launch: Launch) -> Iterator[TorchProcesses]:
    """Join the first process of this machine, which started this one."""
    choose_interface(launch)
    yield TorchProcesses(launch, connect_store(launch))


def _start_worker(launch: Launch) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "wordle_rl.commands.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**environment(), **launch.variables()},
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
