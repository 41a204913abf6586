"""vLLM servers play while the trainer learns: rollout.engine=vllm. It knows HTTP and no tensors.

Prompts and answers are token ids. Draws are the server's own: vLLM's CPU build dies of a request
with a seed, and on a GPU a seed would not make draws repeatable either. Each answer sends its whole
prompt, which the server's prefix cache makes cheap.
"""

import os
import secrets
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Completion, EngineLost, Prompts, StopReason, check_prompts
from wordle_rl.policy.grammar import OpenAnswer
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import ServerSettings
from wordle_rl.rollouts.talk import Talk
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.timing import Timers
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.update import pad

API_KEY = "VLLM_API_KEY"  # the environment variable that the server reads, too
_CONNECT = 10.0  # seconds
_THREADS = 64  # requests at once
_PAUSE = 1.0  # seconds without any server before one is tried again, doubled each time up to 64
_LOOK = 0.5  # seconds between two looks for a signal
_LOGPROBS = (-1000.0, 1e-3)  # rounding may bring one above 0; vLLM's minus infinity is -9999
_MAX_CHARS = 300  # characters of a server's message that are shown

# The trainer scores some answers to this text. That finds another base model, a server without its
# adapter, and log-probabilities that are not at the sampling temperature.
_TEXT = "Guess the secret word: <guess>crane</guess> -> x-✓xx. Then <guess>Maybe</guess>, or"
_ROWS, _TOKENS = 4, 16


class ServerError(EngineLost):
    """A server gave no answer, or one that cannot be used."""


@dataclass(kw_only=True)
class Request:
    """Prompts that are answered together."""

    prompts: Prompts
    sampling: Sampling
    most: int  # tokens of an answer
    stop_ids: frozenset[int]
    vocabulary: int  # ids of the trained model
    members: Sequence[int] = ()  # numbers of the prompts in the call that they are from
    server: int = 0  # of the server that should answer

    def body(self, model: str) -> dict[str, Any]:
        """What a server is asked.

        It names whatever changes the distribution, since a server has defaults from the model's
        generation_config.json. ignore_eos leaves our stop ids alone to end an answer.
        """
        sampling = self.sampling
        return {
            "model": model,
            "prompt": [list(ids) for ids in self.prompts],
            "max_tokens": self.most,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": sorted(self.stop_ids),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

    def read(self, answer: Any) -> list[Completion]:
        """The answers to the prompts, in their order. Raises LookupError, TypeError, ValueError."""
        by_index = {choice["index"]: choice for choice in answer["choices"]}
        return [self._read_answer(by_index[i]) for i in range(len(self.prompts))]

    def _read_answer(self, choice: Any) -> Completion:
        ids, scores = choice["token_ids"], choice["logprobs"]
        logprobs = scores["token_logprobs"]
        if not 1 <= len(ids) <= self.most or not set(ids) <= set(range(self.vocabulary)):
            raise ValueError(f"not 1 to {self.most} tokens of the trained model")
        token_ids = [int(name.removeprefix("token_id:")) for name in scores["tokens"]]
        if token_ids != ids or len(logprobs) != len(ids):
            raise ValueError("log-probabilities of other tokens than the answer's")
        if not all(_LOGPROBS[0] < p <= _LOGPROBS[1] for p in logprobs):  # NaN is none, either
            raise ValueError("log-probabilities that are none")
        limit = self.most == self.sampling.max_tokens
        stop = StopReason.TOKEN_LIMIT if limit else StopReason.CONTEXT_FULL
        if ids[-1] in self.stop_ids:
            stop = StopReason.STOP_TOKEN
        elif len(ids) < self.most or not self.stop_ids.isdisjoint(ids[:-1]):
            raise ValueError("it does not end at the first stop token")
        return Completion(ids=ids, logprobs=[min(p, 0.0) for p in logprobs], stop=stop)


class Server:
    """One server. Several threads may use it. Its methods raise ServerError."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.plays = False  # it has agreed with the trainer, and has not failed since
        self.failure: str | None = None  # why it does not play
        key = os.environ.get(API_KEY)
        self.client = httpx2.Client(
            base_url=self.url,
            timeout=httpx2.Timeout(timeout, connect=min(timeout, _CONNECT)),
            headers={"Authorization": f"Bearer {key}"} if key else None,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,  # a proxy leads out of the cluster
        )

    def complete(self, model: str, request: Request) -> list[Completion]:
        """One answer to each prompt."""
        return self.ask("/v1/completions", request.body(model), request.read)

    def ask(
        self, path: str, body: dict[str, Any] | None, read: Callable[[Any], Any] | None = None
    ) -> Any:
        """Ask with this body, or by a GET. read: makes something of the JSON in the answer."""
        try:
            answer = self.client.request("POST" if body else "GET", path, json=body)
        except (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError) as error:
            reason = _shorten(str(error)) or type(error).__name__
            raise ServerError(f"{self.url} does not answer ({reason})") from None
        if answer.status_code != httpx2.codes.OK:
            message = answer.text
            with suppress(ValueError, LookupError, TypeError):
                message = answer.json()["error"]["message"]
            status = f"{path} with {answer.status_code}: {_shorten(str(message))}"
            raise ServerError(f"{self.url} refused {status}")
        try:
            return read and read(answer.json())
        except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ServerError(f"{self.url} sent what cannot be used ({_shorten(reason)})") from None


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_CHARS]


class VllmEngine:
    """Answers as wordle_rl.policy.engine.Engine does, on several servers, without the uniforms.

    A server that fails does not play until it has loaded the adapter again and agrees with the
    trainer. That is tried with the next adapter, or when no server plays.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        adapter: str,
        probe: Request,
        compare: Callable[[str, list[Completion]], None],
        max_context: int,
        stop_ids: frozenset[int],
        check: Callable[[], None] = lambda: None,
        timers: Timers | None = None,
    ) -> None:
        """adapter: its name at the servers. probe: what they answer to be compared.

        compare: takes a server's URL and its answers to the probe, and raises ServerError if they
        differ from the trainer. check: raises to stop the run; called while a server is down.
        """
        self.max_context = max_context
        self.detached = False  # whether the trainer learns meanwhile, and can be asked nothing
        self.servers = [Server(url, timeout=settings.timeout) for url in settings.urls]
        self._settings, self._adapter, self._path = settings, adapter, ""
        self._probe, self._compare = probe, compare
        self._stop_ids, self._check, self._timers = stop_ids, check, timers or Timers()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="vllm")

    def close(self) -> None:
        """Leave the servers, which forget the adapter if they still answer."""
        for server in self._players():
            with suppress(httpx2.HTTPError):
                body = {"lora_name": self._adapter}
                server.client.post("/v1/unload_lora_adapter", json=body, timeout=_CONNECT)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for server in self.servers:
            server.client.close()

    def load(self, path: str) -> None:
        """Let the servers play with the adapter in this folder, whose path is theirs."""
        self._path = path
        self._bring_up()

    def complete(
        self,
        prompts: Prompts,
        sampling: Sampling,
        uniforms: NDArray[np.float64],
        grammar: Sequence[OpenAnswer] | None = None,
    ) -> list[Completion]:
        """See wordle_rl.policy.engine.Engine. Raises EngineLost. It takes no grammar."""
        assert grammar is None and sampling.beams == 1, "the config refuses them with servers"
        check_prompts(prompts, self.max_context)
        answers: dict[int, Completion] = {}
        requests, retries = self._requests(prompts, sampling), self._settings.retries
        with self._timers("decode"):
            for attempt in range(retries + 1):
                if not self._players():
                    if self.detached:
                        break
                    self._pause(_PAUSE * 2 ** min(attempt, 6))
                    self._bring_up()
                if self._players():
                    requests = self._answer(requests, answers)
                if not requests:
                    return [answers[i] for i in range(len(prompts))]
        reason = "; ".join(server.failure for server in self.servers if server.failure)
        raise EngineLost(f"no vLLM server answers after {retries} retries: {reason}")

    def _players(self) -> list[Server]:
        return [server for server in self.servers if server.plays]

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            self._check()
            time.sleep(min(rest, _LOOK))

    def _requests(self, prompts: Prompts, sampling: Sampling) -> list[Request]:
        """Deal the prompts out in blocks, so that most conversations stay with their server."""
        blocks: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for i, ids in enumerate(prompts):
            limit = min(sampling.max_tokens, self.max_context - len(ids))
            blocks[i * len(self.servers) // len(prompts), limit].append(i)
        size = self._settings.prompts_at_once
        return [
            replace(
                self._probe,
                prompts=[prompts[i] for i in part],
                sampling=sampling,
                most=limit,
                stop_ids=self._stop_ids,
                members=part,
                server=server,
            )
            for (server, limit), members in blocks.items()
            for part in (members[i : i + size] for i in range(0, len(members), size))
        ]

    def _answer(self, requests: list[Request], answers: dict[int, Completion]) -> list[Request]:
        """Ask the servers that play, and note the answer to each prompt. Returns what failed."""
        players, jobs = self._players(), []
        for request in requests:
            home = self.servers[request.server]
            server = home if home.plays else players[request.server % len(players)]
            future = self._threads.submit(server.complete, self._adapter, request)
            jobs.append((future, request, server))
        while wait([future for future, *_ in jobs], timeout=_LOOK).not_done:
            if len(players) < len(self.servers):
                self._check()
        failures = []
        for future, request, server in jobs:
            try:
                answers |= zip(request.members, future.result(), strict=True)
            except ServerError as error:
                self._note_failure(server, error)
                failures.append(request)
        return failures

    def _bring_up(self) -> None:
        """Load the adapter everywhere, and compare the servers that did not play."""
        body = {"lora_name": self._adapter, "lora_path": self._path, "load_inplace": True}

        def load(server: Server) -> list[Completion]:
            server.ask("/v1/load_lora_adapter", body)
            return [] if server.plays else server.complete(self._adapter, self._probe)

        futures = [self._threads.submit(load, server) for server in self.servers]
        for server, future in zip(self.servers, futures, strict=True):
            try:
                answers = future.result()
                if not server.plays:
                    self._compare(server.url, answers)
            except ServerError as error:
                self._note_failure(server, error)
                continue
            if server.failure:
                print(f"{server.url} plays again", file=sys.stderr, flush=True)
            server.plays, server.failure = True, None

    def _note_failure(self, server: Server, error: ServerError) -> None:
        """Let a server play no more, with a warning if it did."""
        was_playing, server.plays, server.failure = server.plays, False, str(error)
        if was_playing:
            plan = "the other servers play" if self._players() else "the run waits and tries again"
            print(f"warning: {error}; {plan}", file=sys.stderr, flush=True)


def _serve_newest(
    policy: Policy, engine: VllmEngine, folder: Path, save: Callable[[Path], None]
) -> Callable[[], VllmEngine]:
    """A function that gives the engine, once its servers have the newest adapter.

    Each version gets a folder of its own in this one. save: writes it into an empty folder.
    """
    last_version = -1

    def get_engine() -> VllmEngine:
        nonlocal last_version
        if policy.version != last_version and not engine.detached:
            with policy.timers("adapter"):
                for path in sorted(folder.iterdir())[:-1]:  # a server may still read the last one
                    shutil.rmtree(path, ignore_errors=True)
                target = folder / f"{policy.version:06d}"
                target.mkdir()
                save(target)
                engine.load(str(target))
            last_version = policy.version
        return engine

    return get_engine


@contextmanager
def serve(
    policy: Policy,
    setup: Experiment,
    run: Path,
    check: Callable[[], None] = lambda: None,
    *,
    save: Callable[[Path], None],
    vocabulary: int,
) -> Iterator[None]:
    """Let the servers of a run play for its policy during the block, once they fit.

    run: the run's folder. check: raises to stop the run. save: writes the adapter in PEFT's form
    into an empty folder. vocabulary: ids of the model. Raises ConfigError when a server does not.
    """
    settings, room = setup.servers, setup.model.max_context
    assert settings is not None
    probe = _ask_for_text(policy, setup, vocabulary)
    adapter = f"wordle-{secrets.token_hex(6)}"  # a name that no other run has
    root = Path(settings.folder or run / "served").resolve()
    folder = root / adapter
    with ExitStack() as stack:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)  # what a killed process left there
        stack.callback(shutil.rmtree, folder if settings.folder else root, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            engine = VllmEngine(
                settings,
                adapter=adapter,
                probe=probe,
                compare=partial(_compare, policy, probe.prompts[0], settings.most_gap),
                max_context=room,
                stop_ids=policy.tokenizer.stop_ids,
                check=check,
                timers=policy.timers,
            )
            stack.callback(engine.close)
            for server in engine.servers:
                _check_context(server, room)
            get_engine = _serve_newest(policy, engine, folder, save)
            get_engine()
            if reasons := [server.failure for server in engine.servers if server.failure]:
                raise ServerError(reasons[0])
        except ServerError as error:
            raise ConfigError(f"vllm.urls: {error}; docs/SCALE.md says how to start it") from None
        except OSError as error:
            raise ConfigError(f"vllm.folder={root} cannot be written: {error.strerror}") from None
        urls = ", ".join(settings.urls)
        print(f"vLLM plays ({urls}), so neither the seed nor resume= repeats games", flush=True)
        policy.served = get_engine
        stack.callback(setattr, policy, "served", None)
        yield


def _ask_for_text(policy: Policy, setup: Experiment, vocabulary: int) -> Request:
    """What servers are tried with: answers to a text, at the temperature that is scored."""
    room = setup.model.max_context
    text = policy.tokenizer.render([{"role": "user", "content": _TEXT}])  # with special tokens
    limit = min(_TOKENS, room // 2)
    sampling = Sampling(temperature=setup.recipe.sampling.temperature, max_tokens=limit)
    return Request(
        prompts=[policy.tokenizer.encode(text)[: room - limit]] * _ROWS,
        sampling=sampling,
        most=limit,
        stop_ids=frozenset(),
        vocabulary=vocabulary,
    )


def _check_context(server: Server, room: int) -> None:
    """Raise ConfigError for a server whose context is shorter than a game. room: its tokens."""
    limit = server.ask("/v1/models", None, lambda reply: reply["data"][0]["max_model_len"])
    if limit < room:
        raise ConfigError(
            f"model.max_context must be at most {limit}, the context of {server.url} "
            f"(--max-model-len), not {room}"
        )


def _compare(
    policy: Policy, prompt: Sequence[int], limit: float, url: str, answers: list[Completion]
) -> None:
    """Raise ServerError for a server that plays another policy than the trainer's.

    answers: its own to the prompt. limit: mean difference of log-probabilities, in nats.
    """
    talks = [Talk() for _ in answers]
    for talk, answer in zip(talks, answers, strict=True):
        talk.hear(list(prompt), 0)
        talk.answer(answer.ids, 0, answer.logprobs)
    batch = pad(talks, policy.tokenizer.pad_id)
    gap = np.abs(policy.score(batch) - batch.sampler_logprobs)[batch.trained].mean()
    if not gap <= limit:  # also if it is not a number
        raise ServerError(
            f"{url} differs from the trainer by {gap:.3g} nats a token, above "
            f"vllm.most_gap={limit:g}: it has another base model than model.path, or was started "
            "without --logprobs-mode processed_logprobs"
        )
