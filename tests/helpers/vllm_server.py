"""A small HTTP server that answers as vLLM 0.32 does, on our own engine.

It knows the calls that wordle_rl.backends.vllm makes. vllm_contract.json holds answers of a real
server, and a test holds this one to them. Like the real one it draws for itself.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from peft import PeftModel

from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import build_engine
from wordle_rl.backends.vllm import Request, VllmEngine
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import ServerSettings

Answer = tuple[int, Any]  # status and body, a text or what becomes JSON
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
        prompts=[[1]], sampling=Sampling(max_tokens=4), most=4, stop_ids=frozenset(),
        vocabulary=servers[0].vocabulary,
    )  # fmt: skip
    return VllmEngine(
        ServerSettings(urls=[server.url for server in servers], **{"timeout": 5.0, **settings}),
        adapter="mine", probe=probe, compare=compare, max_context=max_context, stop_ids=stop_ids,
        check=check,
    )  # fmt: skip


class SmallServer:
    """One server on this machine. `close` ends it as a crash would."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        name: str = "base",
        max_model_len: int = 1024,
        seed: int = 0,
    ) -> None:
        self.name, self.max_model_len = name, max_model_len
        self.vocabulary = model.get_input_embeddings().weight.shape[0]
        self.faults: list[Fault] = []  # of the next requests of answers, one each
        self.asked: list[tuple[str, Any]] = []  # path and body of each request
        self.folder_is_there = True
        self.raw_logprobs = False  # as without --logprobs-mode processed_logprobs
        self.adapters: dict[str, CausalLM] = {}
        self._model, self._tokenizer = model, tokenizer
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()  # one engine computes at a time
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self.faults = ["hang up"] * 1000  # for connections that are still open

    def __enter__(self) -> SmallServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def count(self, path: str = ANSWERS) -> int:
        return sum(asked == path for asked, _ in self.asked)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self._send(*server._get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append((self.path, body))
                answer = server._post(self.path, body)
                if answer is None:
                    self.close_connection = True
                else:
                    self._send(*answer)

            def _send(self, status: int, body: Any) -> None:
                text = body if isinstance(body, str) else json.dumps(body)
                self.send_response(status)
                if not isinstance(body, str):
                    self.send_header("Content-Type", "application/json")
                data = text.encode()
                self.send_header("Content-Length", str(len(data)))
                with suppress(ConnectionError):  # the client does not wait any more
                    self.end_headers()
                    self.wfile.write(data)

        return Handler

    def _get(self, path: str) -> Answer:
        if path != "/v1/models":
            return 404, {"detail": "Not Found"}
        base = {
            "id": self.name, "object": "model", "owned_by": "vllm", "root": self.name,
            "parent": None, "max_model_len": self.max_model_len,
        }  # fmt: skip
        more = [{**base, "id": name, "parent": self.name} for name in self.adapters]
        return 200, {"object": "list", "data": [base, *more]}

    def _post(self, path: str, body: dict[str, Any]) -> Answer | None:
        """The answer; None to hang up."""
        if path == LOAD:
            return self._load(body["lora_name"], body["lora_path"])
        if path == "/v1/unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                return _error(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
            return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
        if path == "/tokenize":
            ids = self._tokenizer.encode(body["prompt"], add_special_tokens=False)
            return 200, {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids}
        if path != ANSWERS:
            return 404, {"detail": "Not Found"}
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hang up":
            return None
        if fault == "crash":
            return _error(500, "EngineCore encountered an issue.")
        if fault == "slow":
            time.sleep(3)
        answer = self._complete(body)
        if callable(fault):
            return 200, fault(answer[1])
        return answer

    def _load(self, name: str, path: str) -> Answer:
        if not (Path(path) / "adapter_config.json").is_file() or not self.folder_is_there:
            return _error(404, f"Loading lora {name} failed: No adapter found for {path}")
        merged: Any = PeftModel.from_pretrained(copy.deepcopy(self._model), path).merge_and_unload()
        self.adapters[name] = CausalLM(merged.eval())
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _complete(self, body: dict[str, Any]) -> Answer:
        name, prompts = body["model"], body["prompt"]
        lm = CausalLM(self._model) if name == self.name else self.adapters.get(name)
        if lm is None:
            alias = f"Valid aliases: {self.name}."
            return _error(404, f"The model `{name}` does not exist. {alias}")
        assert "seed" not in body, "a seed ends vLLM's CPU build"
        assert body["ignore_eos"] and body["repetition_penalty"] == 1.0
        if wrong := [i for ids in prompts for i in ids if not 0 <= i < self.vocabulary]:
            return _error(400, f"Token id {wrong[0]} is out of vocabulary")
        sampling = Sampling(
            temperature=body["temperature"], max_tokens=body["max_tokens"], top_p=body["top_p"],
            top_k=body["top_k"],
        )  # fmt: skip
        with self._lock:
            engine = build_engine(
                lm, stop_ids=frozenset(body["stop_token_ids"]), max_context=self.max_model_len
            )
            tables = engine.next_logprobs(prompts) if body["logprobs"] == -1 else None
            drawn = engine.complete(
                prompts, sampling, self._random.random((len(prompts), sampling.max_tokens))
            )
        factor = sampling.scoring_temperature if self.raw_logprobs else 1.0
        choices = [
            _choice(place, prompts[place], done, factor, None if tables is None else tables[place])
            for place, done in enumerate(drawn)
        ]
        return 200, {"object": "text_completion", "model": name, "choices": choices}


def _choice(
    place: int, prompt: list[int], done: Any, factor: float, table: np.ndarray | None
) -> dict[str, Any]:
    names = [f"token_id:{token}" for token in done.ids]
    logprobs = [factor * p for p in done.logprobs]
    top = [{name: p} for name, p in zip(names, logprobs, strict=True)]
    if table is not None:
        top[0] = {f"token_id:{token}": float(p) for token, p in enumerate(table)}
    stopped = done.stop == "stop_token"
    return {
        "index": place, "token_ids": done.ids, "prompt_token_ids": prompt, "prompt_logprobs": None,
        "logprobs": {"token_logprobs": logprobs, "tokens": names, "top_logprobs": top},
        "finish_reason": "stop" if stopped else "length",
        "stop_reason": done.ids[-1] if stopped else None,
    }  # fmt: skip


def _error(status: int, message: str) -> Answer:
    kind = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}[status]
    return status, {"error": {"message": message, "type": kind, "code": status}}
