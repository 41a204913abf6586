"""Several processes that train one policy through torch.distributed, on one machine or several.

With backend.devices above 1, the first process spawns the others, and they meet in a file. On
several machines torchrun starts them, and its agents end what is left when one fails. They
communicate through Gloo on the CPU and NCCL on CUDA.
"""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.multiprocessing.spawn import start_processes as spawn

from wordle_rl.runs import exchange
from wordle_rl.runs.interrupts import Interrupts
from wordle_rl.runs.processes import Launch, Processes

T = TypeVar("T")
Follow = Callable[[Launch, str], None]  # what another process does, given the file where all meet

_COME = timedelta(minutes=5)  # in which all processes must have come
_PATIENCE = timedelta(hours=2)  # of a collective; a death closes a connection and shows at once
_GOODBYE = 10.0  # seconds in which a process should end
_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


class ProcessLost(RuntimeError):
    """Another process of the run is gone or did not come, so this one cannot continue."""


class TorchProcesses(Processes):
    """Several, on torch's default process group."""

    def __init__(self, launch: Launch, store: Any, others: Sequence[Any] = ()) -> None:
        """Join the group at a store, and wait until all others have joined.

        others: the processes that this one has spawned.
        """
        self.rank, self.size, self._others = launch.rank, launch.size, others
        self._group: Any = None  # of tensors on a GPU
        _choose_interface(launch)
        self._wait_for_all(store)
        dist.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=self.size, timeout=_PATIENCE
        )

    def use_device(self, device: torch.device) -> None:
        """Add up tensors on this device from now on. All processes call it together."""
        if device.type == "cuda":
            torch.cuda.set_device(device)
            self._group = dist.new_group(backend="nccl", timeout=_PATIENCE)

    def gather(self, value: T) -> list[T]:
        data = torch.frombuffer(bytearray(exchange.write(value)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self._explain_failure():
            dist.all_gather(sizes, torch.tensor([len(data)]))
            room = int(max(sizes))
            parts = [torch.empty(room, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(parts, nn.functional.pad(data, (0, room - len(data))))
        pairs = zip(parts, sizes, strict=True)
        return [exchange.read(part[: int(size)].numpy().tobytes()) for part, size in pairs]

    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        with self._explain_failure():
            for work in [dist.all_reduce(t, group=self._group, async_op=True) for t in tensors]:
                assert work is not None
                work.wait()

    def _wait_for_all(self, store: Any) -> None:
        """Wait until every process has come to the store, because Gloo does not say who is missing.

        Raises ProcessLost after five minutes, with the numbers of the missing ones.
        """
        names = [f"here/{rank}" for rank in range(self.size)]
        store.set(names[self.rank], "")
        end = time.monotonic() + _COME.total_seconds()
        while not store.check(names):
            if time.monotonic() > end or any(process.exitcode for process in self._others):
                ranks = [str(rank) for rank, n in enumerate(names) if not store.check([n])]
                raise ProcessLost(
                    f"processes {', '.join(ranks)} of {self.size} did not join; on several "
                    "machines start torchrun on each, with another --node-rank"
                )
            time.sleep(0.05)

    @contextmanager
    def _explain_failure(self) -> Iterator[None]:
        """Say who is gone when a connection was closed."""
        try:
            yield
        except RuntimeError:
            end = time.monotonic() + _GOODBYE
            while self._others and time.monotonic() < end:
                codes = [process.exitcode for process in self._others]
                if any(codes):
                    rank, code = next((r, code) for r, code in enumerate(codes, 1) if code)
                    raise ProcessLost(f"process {rank} ended with exit code {code}") from None
                time.sleep(0.05)
            raise ProcessLost("another process of the run was lost") from None


@contextmanager
def join_processes(launch: Launch, file: str = "") -> Iterator[TorchProcesses]:
    """Join the others: at a file of this machine, or where torchrun says. Raises ProcessLost."""
    try:
        if file:
            store: Any = _meet(file, launch.size)
        else:
            [store, *_] = next(rendezvous("env://", launch.rank, launch.size, timeout=_COME))
        processes = TorchProcesses(launch, store)
    except dist.DistError as error:
        raise ProcessLost(
            f"nothing answers at MASTER_ADDR={launch.address} MASTER_PORT={launch.port}: see what "
            f"ended there, start torchrun on that machine too, and let the port through ({error})"
        ) from None
    try:
        yield processes
    finally:
        _leave()


@contextmanager
def start_processes(size: int, follow: Follow, interrupts: Interrupts) -> Iterator[TorchProcesses]:
    """Start the other size - 1 processes on this machine and join them. They end with the block.

    follow: what each of them does. A second signal kills them, even if one hangs.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "meeting")
        context: Any = spawn(
            _enter,
            (follow, size, file),
            nprocs=size - 1,
            join=False,
            daemon=True,
            start_method="spawn",
        )
        others = context.processes

        def kill() -> None:
            for process in others:
                process.kill()

        interrupts.on_second(kill)
        try:
            yield TorchProcesses(_make_launch(0, size), _meet(file, size), others)
        finally:
            _leave()  # closes the connections, which ends processes that wait for this one
            for process in others:
                process.join(_GOODBYE)
                process.kill()
                process.join()


def _meet(file: str, size: int) -> Any:
    return dist.FileStore(file, size)  # pyright: ignore[reportPrivateImportUsage]


def _enter(index: int, follow: Follow, size: int, file: str) -> None:
    """The beginning of a spawned process."""
    launch = _make_launch(index + 1, size)
    os.environ.update(launch.variables())
    follow(launch, file)


def _make_launch(rank: int, size: int) -> Launch:
    fields = {"local_rank": rank, "local_size": size, "address": "127.0.0.1", "port": 0}
    return Launch(rank=rank, size=size, **fields)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _choose_interface(launch: Launch) -> None:
    """Let the processes talk over loopback, or over the network that leads to the first machine.

    By itself, Gloo takes the address of the machine's own name, which is often a loopback address.
    """
    name = _LOOPBACK if launch.local_size == launch.size else _find_interface(launch)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # without = NCCL takes a prefix


def _find_interface(launch: Launch) -> str | None:
    """The network interface through which this machine reaches the first one."""
    with suppress(OSError):
        [(family, kind, _, _, address), *_] = socket.getaddrinfo(
            launch.address, launch.port, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            ip = probe.getsockname()[0]
        for name, addresses in psutil.net_if_addrs().items():
            if any(entry.address.partition("%")[0] == ip for entry in addresses):
                return name
    return None
