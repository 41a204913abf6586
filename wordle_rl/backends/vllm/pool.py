"""Several vLLM servers as one: deals requests to them, and sends again what failed.

A server that fails is down. The others then answer in its place. It is tried again with the next
adapter, or when all are down. It plays again once it has loaded the adapter and agrees with the
trainer. All of this happens in the thread that asks, other threads only wait for answers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wordle_rl.backends.vllm.server import Request, Server, ServerError
from wordle_rl.policy.engine import Completion, EngineLost
from wordle_rl.policy.settings import ServerSettings

_THREADS = 64  # requests at once
_LONGEST_PAUSE = 60.0  # seconds
_LOOK = 0.5  # seconds between two looks for a signal


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """The adapter that plays."""

    name: str  # at the servers
    path: str  # of its folder, as the servers see it


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request, and the place of the server that should answer it."""

    place: int
    request: Request


@dataclass(kw_only=True)
class Member:
    """A server, and whether it plays."""

    server: Server
    up: bool = False
    compared: bool = False  # with the trainer, since it last failed
    failure: str | None = None  # why it is down; None for a server that was never asked


class Pool:
    """The servers of a run."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        probe: Request,
        compare: Callable[[str, list[Completion]], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """probe: what each server answers after loading an adapter.

        compare: raises ServerError for answers that differ from the trainer. It gets the server's
        URL, too. check: raises to stop the run; called while servers are down.
        """
        self.members = [
            Member(server=Server(url, timeout=settings.timeout)) for url in settings.urls
        ]
        self.prompts_at_once = settings.prompts_at_once
        self._retries = settings.retries
        self._probe, self._compare, self._check = probe, compare, check
        self._adapter: Adapter | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="vllm")
        self._pause = threading.Event()  # never set: waiting for it is sleeping
        self._failures = 0  # since the last answer

    @property
    def size(self) -> int:
        return len(self.members)

    def close(self) -> None:
        """Forget the servers, which forget the adapter if they still answer."""
        if self._adapter is not None:
            for member in self.members:
                if member.up:
                    member.server.unload(self._adapter.name)
                    member.up = False
        self._threads.shutdown(wait=False, cancel_futures=True)
        for member in self.members:
            member.server.close()

    def begin(self, adapter: Adapter) -> None:
        """Load the first adapter. Raises ServerError unless all servers play with it."""
        self._adapter = adapter
        for member, drawn in self._load(self.members):
            self._compare(member.server.url, drawn.result())
            member.up = member.compared = True

    def load(self, adapter: Adapter) -> None:
        """Load the next adapter everywhere. Raises EngineLost when no server plays with it."""
        self._adapter = adapter
        self._bring_up(self.members)
        self._need_one()

    def answer(self, jobs: Sequence[Job]) -> list[list[Completion]]:
        """The answers to all requests. Raises EngineLost when some get none."""
        assert self._adapter is not None
        name = self._adapter.name
        found: dict[int, list[Completion]] = {}
        sent: dict[Future[list[Completion]], tuple[int, Member]] = {}
        attempts = [0] * len(jobs)
        due = list(range(len(jobs)))
        while due or sent:
            for number in due:
                member = self._choose(jobs[number].place)
                future = self._threads.submit(member.server.complete, name, jobs[number].request)
                sent[future] = number, member
            due = []
            for future in wait(sent, timeout=_LOOK, return_when=FIRST_COMPLETED).done:
                number, member = sent.pop(future)
                try:
                    found[number] = future.result()
                    self._failures = 0
                except ServerError as error:
                    self._note_failure(member, error)
                    attempts[number] += 1
                    if attempts[number] > self._retries:
                        raise EngineLost(self._describe(attempts[number])) from None
                    due.append(number)
            if due or self._failures:
                self._check()
        return [found[number] for number in range(len(jobs))]

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], vocabulary: int
    ) -> NDArray[np.float32]:
        """As Server.next_logprobs, from one server."""
        assert self._adapter is not None
        try:
            server = self._choose(0).server
            return server.next_logprobs(self._adapter.name, prompts, vocabulary)
        except ServerError as error:
            raise EngineLost(str(error)) from None

    def _choose(self, place: int) -> Member:
        """The server in this place, or another one while it is down."""
        if self.members[place].up:
            return self.members[place]
        self._need_one()
        playing = [member for member in self.members if member.up]
        return playing[place % len(playing)]

    def _need_one(self) -> None:
        """Wait until a server plays. Raises EngineLost when that takes too long."""
        tries = 0
        while not any(member.up for member in self.members):
            if tries == self._retries:
                raise EngineLost(self._describe(tries))
            self._sleep(min(2.0 ** min(self._failures - 1, 30), _LONGEST_PAUSE))
            tries += 1
            self._bring_up(self.members)

    def _sleep(self, seconds: float) -> None:
        while seconds > 0:
            self._check()
            self._pause.wait(min(seconds, _LOOK))
            seconds -= _LOOK

    def _bring_up(self, members: Sequence[Member]) -> None:
        """Load the adapter on these servers. One that fails or plays differently is down."""
        for member, drawn in self._load(members):
            try:
                answers = drawn.result()
                if not member.compared:
                    self._compare(member.server.url, answers)
            except ServerError as error:
                self._note_failure(member, error)
                continue
            if member.failure is not None:
                print(f"{member.server.url} plays again", file=sys.stderr, flush=True)
            member.up, member.compared, member.failure = True, True, None

    def _load(self, members: Sequence[Member]) -> list[tuple[Member, Future[list[Completion]]]]:
        """Let servers load the adapter, and new or failed ones answer the probe, all at once."""
        adapter = self._adapter
        assert adapter is not None

        def load(member: Member) -> list[Completion]:
            member.server.load(adapter.name, adapter.path)
            return [] if member.compared else member.server.complete(adapter.name, self._probe)

        return [(member, self._threads.submit(load, member)) for member in members]

    def _note_failure(self, member: Member, error: ServerError) -> None:
        """Take a server down. A new reason is printed once."""
        self._failures += 1
        if member.up or member.failure != str(error):
            others = any(m.up for m in self.members if m is not member)
            then = "the other servers play" if others else "the run waits and tries again"
            print(f"warning: {error}; {then}", file=sys.stderr, flush=True)
        member.up, member.compared, member.failure = False, False, str(error)

    def _describe(self, tries: int) -> str:
        """Why nobody answers."""
        reasons = [member.failure for member in self.members if member.failure]
        return f"no vLLM server answers after {tries} retries: {'; '.join(reasons)}"
