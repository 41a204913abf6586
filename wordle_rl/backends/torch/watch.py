"""Notices on one machine what happens to the processes of a run on the others.

Each process beats in the store every second. The first one watches all others, and they watch it.
A thread does this, because the main thread may wait for a lost process for ever.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from wordle_rl.runs.interrupts import SIGNALS
from wordle_rl.runs.launch import Launch

_BEAT = 1.0  # seconds
_SILENCE = 40.0  # seconds without a beat after which a process counts as lost
_SHORT_SILENCE = 5.0  # the same once a connection to some process broke
_FAREWELL = 20.0  # seconds in which the others should end after the first process
_STOP = "stop"  # key of a signal that some process got


class Watch:
    """The beats of a run's processes, and what they tell each other beside the training."""

    def __init__(
        self,
        store: Any,
        launch: Launch,
        hosts: Sequence[str],
        *,
        stop: Callable[[int], None],
        lost: Callable[[str], None],
    ) -> None:
        """store: a connection of this watch alone. hosts: the machine of each process.

        stop: called in the first process with a signal that another one got. lost: called with
        a line of explanation just before this process ends, because another one is gone.
        """
        self._store, self._launch, self._hosts = store, launch, hosts
        self._stop, self._lost = stop, lost
        first = launch.rank == 0
        self._others = [r for r in range(launch.size) if r] if first else [0]
        now = time.monotonic()
        self._seen = dict.fromkeys(self._others, (0, now))  # last beat of each, and when it changed
        self._over = threading.Event()
        self._signum = 0
        self._store.add(self._beat(launch.rank), 1)
        threading.Thread(target=self._run, daemon=True).start()
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)  # as set_wakeup_fd demands
        threading.Thread(target=self._wait_for_signals, args=(reading,), daemon=True).start()

    @staticmethod
    def _beat(rank: int) -> str:
        return f"beat/{rank}"

    @staticmethod
    def _end(rank: int) -> str:
        return f"end/{rank}"

    def pass_on_signals(self) -> None:
        """From now on tell the first process of a signal, which stops the run where it can.

        To be called again after a library has replaced the handlers.
        """
        for signum in SIGNALS:
            signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._writing)

    def _wait_for_signals(self, reading: int) -> None:
        """Take signals in a thread, because the main one may be inside a library."""
        while True:
            self._signum = os.read(reading, 1)[0]

    def leave(self, code: int) -> None:
        """Tell the others that this process ends with an exit code, and stop watching.

        The first process waits until they know, because they may read it in its own store.
        """
        self._over.set()
        patience = _SHORT_SILENCE if code else _FAREWELL
        with suppress(dist.DistError):
            self._store.set(self._end(self._launch.rank), str(code))
            end = time.monotonic() + patience
            keys = [self._end(rank) for rank in self._others]
            if self._launch.rank == 0:
                while not self._store.check(keys) and time.monotonic() < end:
                    time.sleep(_BEAT / 10)

    def find_lost(self) -> str:
        """Which process is gone, after a connection broke. Takes some seconds to be sure.

        Usually the first process has told the others to end before they find out themselves.
        """
        time.sleep(_FAREWELL if self._launch.rank else _SHORT_SILENCE + 2 * _BEAT)
        silent = self._find_silent(_SHORT_SILENCE)
        return self._describe(silent[0]) if silent else "another process was lost"

    def _run(self) -> None:
        while not self._over.wait(_BEAT):
            try:
                self._look()
            except dist.DistError:
                # The first process is gone with its store, unless this one is about to end, too.
                if not self._over.wait(_SHORT_SILENCE):
                    self._give_up(f"{self._describe(0)}, with the store where the processes meet")

    def _look(self) -> None:
        store, rank = self._store, self._launch.rank
        store.add(self._beat(rank), 1)
        if self._signum and not store.check([_STOP]):
            store.set(_STOP, str(self._signum))
        if rank == 0 and store.check([_STOP]):
            self._stop(int(store.get(_STOP)))
        ended = [other for other in self._others if store.check([self._end(other)])]
        for other in ended:
            code = int(store.get(self._end(other)))
            if rank:
                self._over.set()
                store.set(self._end(rank), str(code))
                os._exit(code)  # the first process has said why
            if code:
                self._give_up(f"process {other} on {self._hosts[other]} ended with an error")
        now = time.monotonic()
        for other in self._others:
            count = store.add(self._beat(other), 0)
            if count != self._seen[other][0] or other in ended:
                self._seen[other] = (count, now)
        if silent := self._find_silent(_SILENCE):
            self._give_up(self._describe(silent[0]))

    def _find_silent(self, seconds: float) -> list[int]:
        now = time.monotonic()
        return [rank for rank, (_, changed) in self._seen.items() if now - changed > seconds]

    def _describe(self, rank: int) -> str:
        return f"process {rank} on {self._hosts[rank]} was lost"

    def _give_up(self, reason: str) -> None:
        if self._over.is_set():
            return
        try:
            self._lost(reason)
        finally:
            os._exit(1)  # safe at any moment: checkpoints survive it
