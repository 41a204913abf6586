"""A small HTTP server that answers as vLLM 0.32 does, on our own engine.

It knows the calls that wordle_rl.backends.vllm makes, and draws by its seed and the prompts.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from peft import PeftModel

from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.backends.vllm import Request, VllmEngine
from wordle_rl.policy.prefix_cache import CachedEngine
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import ServerSettings

Answer = tuple[int, Any]  # status, and what becomes JSON
# What happens to one request of answers: a text names it, a function changes the right answer.
Fault = str | Callable[[dict[str, Any]], Any]
ANSWERS, LOAD = "/v1/completions", "/v1/load_lora_adapter"


def served_by(
    servers: Sequence[SmallServer],
    *,
    max_context: int = 1024,
    stop_ids: frozenset[int] = frozenset(),
    compare: Callable[[str, Any], None] = lambda url, drawn: None,
    check: Callable[[], None] = lambda: None,
    **settings: Any,
) -> VllmEngine:
    """The engine on some servers, without an adapter yet."""
    probe = Request(
        prompts=[[1]],
        sampling=Sampling(max_tokens=4),
        most=4,
        stop_ids=frozenset(),
        vocabulary=servers[0].vocabulary,
    )
    return VllmEngine(
        ServerSettings(urls=[server.url for server in servers], **{"timeout": 60.0, **settings}),
        adapter="mine",
        probe=probe,
        compare=compare,
        max_context=max_context,
        stop_ids=stop_ids,
        check=check,
    )


class SmallServer:
    """One server on this machine. `close` ends it as a crash would."""

    def __init__(self, model: Any, *, max_model_len: int = 1024, seed: int = 0) -> None:
        self.max_model_len = max_model_len
        self.vocabulary = model.get_input_embeddings().weight.shape[0]
        self.faults: list[Fault] = []  # of the next requests of answers, one each
        self.asked: list[tuple[str, Any]] = []  # path and body of each request
        self.raw_logprobs = False  # as without --logprobs-mode processed_logprobs
        self.adapters: dict[str, CausalLM] = {}
        self._model, self._seed = model, seed
        self._lock = threading.Lock()  # one engine computes at a time
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads, self._http.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self.faults = ["hang up"] * 1000  # for connections that are still open

    def count(self, path: str = ANSWERS) -> int:
        return sum(target == path for target, _ in self.asked)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                base = {"id": "base", "parent": None, "max_model_len": server.max_model_len}
                self._send(200, {"data": [base]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append((self.path, body))
                if answer := server._post(self.path, body):
                    self._send(*answer)
                else:
                    self.close_connection = True

            def _send(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                with suppress(ConnectionError):  # the client does not wait any more
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

        return Handler

    def _post(self, path: str, body: dict[str, Any]) -> Answer | None:
        """The answer; None to hang up."""
        if path == LOAD:
            return self._load(body["lora_name"], body["lora_path"])
        if path != ANSWERS:
            self.adapters.pop(body["lora_name"], None)
            return 200, "Success"
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hang up":
            return None
        if fault == "crash":
            return _error(500, "EngineCore encountered an issue.")
        if fault == "slow":
            time.sleep(6)
        status, answer = self._complete(body)
        return status, fault(answer) if callable(fault) else answer

    def _load(self, name: str, path: str) -> Answer:
        if not (Path(path) / "adapter_config.json").is_file():
            return _error(404, f"Loading lora {name} failed: No adapter found for {path}")
        model: Any = PeftModel.from_pretrained(copy.deepcopy(self._model), path).merge_and_unload()
        self.adapters[name] = CausalLM(model.eval())
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _complete(self, body: dict[str, Any]) -> Answer:
        name, prompts = body["model"], body["prompt"]
        lm = CausalLM(self._model) if name == "base" else self.adapters.get(name)
        if lm is None:
            return _error(404, f"The model `{name}` does not exist.")
        sampling = Sampling(temperature=body["temperature"], max_tokens=body["max_tokens"])
        with self._lock:
            stops = frozenset(body["stop_token_ids"])
            engine = CachedEngine(TorchRows(lm), stop_ids=stops, max_context=self.max_model_len)
            random = np.random.default_rng([self._seed, zlib.crc32(repr(prompts).encode())])
            numbers = random.random((len(prompts), sampling.max_tokens))
            completions = engine.complete(prompts, sampling, numbers)
        factor = sampling.temperature if self.raw_logprobs else 1.0
        choices = []
        for place, completion in enumerate(completions):
            names = [f"token_id:{token}" for token in completion.ids]
            entry = {"token_logprobs": [factor * p for p in completion.logprobs], "tokens": names}
            choices.append({"index": place, "token_ids": completion.ids, "logprobs": entry})
        return 200, {"model": name, "choices": choices}


def _error(status: int, message: str) -> Answer:
    return status, {"error": {"message": message, "code": status}}
