"""Where the processes of a run find each other, on one machine or several.

They meet at a store of keys and values, which torchrun serves, or else the first process.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psutil
import torch.distributed as dist

from wordle_rl.runs.launch import Launch, has_agent_store

_PATIENCE = 300.0  # seconds in which all processes must have come
_PAUSE = 0.2  # seconds between two looks
_ANSWER = timedelta(seconds=20)  # in which the store answers, or is lost
_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class NotAllCame(RuntimeError):
    """Not all processes of a run found each other in time."""


def create_store(address: str, size: int, port: int = 0) -> Any:
    """Serve a store at an address of this machine, at a free port unless one is given."""
    # A store that opens its port itself listens on all interfaces, whatever host it was given.
    listener = socket.create_server((address, port))
    port = listener.getsockname()[1]
    return _open(address, port, size, is_master=True, master_listen_fd=listener.detach())


def connect_store(launch: Launch) -> Any:
    """Connect to the store of a run. Raises NotAllCame when none answers within five minutes.

    torchrun's own store was there before this process. Where it is gone, the first machine is.
    """
    patience = _ANSWER.total_seconds() if has_agent_store() else _PATIENCE
    end = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((launch.address, launch.port), timeout=2).close()
            return _open(launch.address, launch.port, launch.size, is_master=False)
        except (OSError, dist.DistError):
            if time.monotonic() > end:
                raise NotAllCame(
                    f"nothing answers at MASTER_ADDR={launch.address} MASTER_PORT={launch.port} "
                    f"after {patience:.0f} s: see whether the run ended there, start torchrun on "
                    "that machine too, and let the port through"
                ) from None
        time.sleep(_PAUSE)


def open_store(launch: Launch) -> Any:
    """The store of processes that torchrun, or a launcher like it, has started."""
    if launch.rank == 0 and not has_agent_store():
        return create_store(launch.address, launch.size, launch.port)
    return connect_store(launch)


def wait_for_all(store: Any, launch: Launch) -> list[str]:
    """Wait until every process has come. Returns the name of each one's machine.

    Raises NotAllCame after five minutes, with the numbers of the missing ones.
    """
    keys = [f"host/{rank}" for rank in range(launch.size)]
    try:
        store.set(keys[launch.rank], socket.gethostname())
        end = time.monotonic() + _PATIENCE
        while not store.check(keys):
            if time.monotonic() > end:
                missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
                raise NotAllCame(
                    f"{_describe(missing)} of {launch.size} did not come within {_PATIENCE:.0f} s: "
                    "start torchrun on every machine, with the same --master-addr and another "
                    "--node-rank"
                )
            time.sleep(_PAUSE)
        return [name.decode() for name in store.multi_get(keys)]
    except dist.DistError:
        raise NotAllCame(
            "the first process ended before all had come: see what it printed"
        ) from None


def choose_interface(launch: Launch) -> None:
    """Let the processes talk over the network that leads to their meeting point.

    By itself, Gloo takes the address of the machine's own name, which is often a loopback address.
    """
    name = _LOOPBACK
    if launch.local_size < launch.size:
        name = _find_interface(launch)
    if name is not None:
        for variable in _INTERFACES:
            exact = "=" if variable.startswith("NCCL") else ""  # without it NCCL takes a prefix
            os.environ.setdefault(variable, exact + name)


def _find_interface(launch: Launch) -> str | None:
    """The network interface through which this machine reaches the meeting point."""
    with suppress(OSError):
        [(family, kind, _, _, address), *_] = socket.getaddrinfo(
            launch.address, launch.port, type=socket.SOCK_DGRAM
        )
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            own = probe.getsockname()[0]
        for name, addresses in psutil.net_if_addrs().items():
            if any(found.address.partition("%")[0] == own for found in addresses):
                return name
    return None


def _open(address: str, port: int, size: int, **more: Any) -> Any:
    # torch documents TCPStore but does not list it among its exports.
    store: Any = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]
    return store(address, port, size, wait_for_workers=False, timeout=_ANSWER, **more)


def _describe(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"process {ranks[0]}"
    return f"processes {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
