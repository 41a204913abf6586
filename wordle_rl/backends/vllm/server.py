"""One vLLM server: its HTTP calls, and the checks that its answers must pass.

The calls are those of vLLM 0.32. Prompts and answers are token ids. Draws are the server's own: its
CPU build dies of a request with a seed, and on a GPU a seed would not make draws repeatable either.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np
from numpy.typing import NDArray

from wordle_rl.policy.engine import Completion, StopReason
from wordle_rl.policy.sampling import Sampling

API_KEY = "VLLM_API_KEY"  # the environment variable that the server reads, too
_CONNECT = 10.0  # seconds
_LEAST = -1000.0  # of a log-probability; vLLM writes -9999 for minus infinity
_ROUNDING = 1e-3  # by which a log-probability may be above 0
_LONGEST = 300  # characters of a server's message that are shown


class ServerError(RuntimeError):
    """A server gave no answer, or one that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A base model that a server has."""

    name: str
    max_context: int  # tokens of a prompt and its answer


@dataclass(frozen=True, kw_only=True)
class Request:
    """Prompts that are answered together."""

    prompts: Sequence[Sequence[int]]
    sampling: Sampling
    most: int  # tokens of an answer
    stop_ids: frozenset[int]
    vocabulary: int  # ids of the trained model


class Server:
    """One server. Several threads may use it."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        key = os.environ.get(API_KEY)
        self._client = httpx2.Client(
            base_url=self.url,
            timeout=httpx2.Timeout(timeout, connect=min(timeout, _CONNECT)),
            headers={"Authorization": f"Bearer {key}"} if key else None,
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,  # a proxy leads out of the cluster
        )

    def close(self) -> None:
        self._client.close()

    def models(self) -> list[ServedModel]:
        """The base models that the server has, without adapters."""
        answer = self._ask("GET", "/v1/models")
        try:
            return [
                ServedModel(name=str(model["id"]), max_context=int(model["max_model_len"]))
                for model in answer["data"]
                if model.get("parent") is None
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._nonsense("its list of models") from None

    def tokenize(self, model: str, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        answer = self._ask("POST", "/tokenize", body)
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        if ids is None or not _are_ids(ids):
            raise self._nonsense("the tokens of a text")
        return ids

    def load(self, adapter: str, path: str) -> None:
        """Load an adapter, in place of the one that had its name before."""
        body = {"lora_name": adapter, "lora_path": path, "load_inplace": True}
        self._ask("POST", "/v1/load_lora_adapter", body, is_json=False)

    def unload(self, adapter: str) -> None:
        """Ask the server to forget an adapter. Nobody waits long for that."""
        with suppress(httpx2.HTTPError):
            body = {"lora_name": adapter}
            self._client.post("/v1/unload_lora_adapter", json=body, timeout=_CONNECT)

    def complete(self, model: str, request: Request) -> list[Completion]:
        """One answer to each prompt. Raises ServerError unless all of them can be used."""
        body = _completion_body(model, request)
        choices = self._choices(self._ask("POST", "/v1/completions", body), len(request.prompts))
        return [self._read_answer(choice, request) for choice in choices]

    def next_logprobs(
        self, model: str, prompts: Sequence[Sequence[int]], vocabulary: int
    ) -> NDArray[np.float32]:
        """Log-probabilities [prompts, vocabulary] of the next token, at temperature 1.

        The server must have been started with --max-logprobs -1.
        """
        request = Request(
            prompts=prompts, sampling=Sampling(max_tokens=1), most=1, stop_ids=frozenset(),
            vocabulary=vocabulary,
        )  # fmt: skip
        body = _completion_body(model, request) | {"logprobs": -1}
        table = np.full((len(prompts), vocabulary), -np.inf, np.float32)
        answer = self._ask("POST", "/v1/completions", body)
        for row, choice in enumerate(self._choices(answer, len(prompts))):
            try:
                [found] = choice["logprobs"]["top_logprobs"]
                for name, logprob in found.items():
                    table[row, int(name.removeprefix("token_id:"))] = float(logprob)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError):
                raise self._nonsense("log-probabilities") from None
        return table

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, is_json: bool = True
    ) -> Any:
        """The answer to a request: JSON, or nothing that is read."""
        try:
            answer = self._client.request(method, path, json=body)
        except httpx2.TimeoutException:
            raise ServerError(f"{self.url} did not answer within {self._timeout:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError) as error:
            reason = _shorten(str(error)) or type(error).__name__
            raise ServerError(f"{self.url} cannot be reached ({reason})") from None
        if answer.status_code != httpx2.codes.OK:
            refusal = f"{self.url} refused {path} with {answer.status_code}"
            said = _shorten(_error_message(answer))
            raise ServerError(f"{refusal}: {said}" if said else refusal)
        if not is_json:
            return None
        try:
            return answer.json()
        except ValueError:
            raise self._nonsense(f"an answer to {path} that is no JSON") from None

    def _choices(self, answer: Any, count: int) -> list[Any]:
        """The answers to several prompts, in the order of the prompts."""
        choices = answer.get("choices") if isinstance(answer, dict) else None
        try:
            by_place = {choice["index"]: choice for choice in choices}  # pyright: ignore[reportOptionalIterable]
            if len(choices) != count:  # pyright: ignore[reportArgumentType]
                raise ValueError
            return [by_place[place] for place in range(count)]
        except (KeyError, TypeError, ValueError):
            raise self._nonsense("other answers than were asked for") from None

    def _read_answer(self, choice: Any, request: Request) -> Completion:
        try:
            ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            names = choice["logprobs"]["tokens"]
        except (KeyError, TypeError):
            raise self._nonsense("an answer without token ids or log-probabilities") from None
        if not _are_ids(ids) or not 1 <= len(ids) <= request.most:
            raise self._nonsense(f"an answer that is not 1 to {request.most} token ids")
        if max(ids) >= request.vocabulary:
            raise self._nonsense(f"token {max(ids)}, which the trained model does not have")
        if not _are_logprobs(logprobs) or len(logprobs) != len(ids):
            raise self._nonsense("log-probabilities that are none")
        if names != [f"token_id:{token}" for token in ids]:
            raise self._nonsense("log-probabilities of other tokens than the answer's")
        stopped = ids[-1] in request.stop_ids
        if not request.stop_ids.isdisjoint(ids[:-1]) or not (stopped or len(ids) == request.most):
            raise self._nonsense("an answer that does not end at the first stop token")
        if stopped:
            reason = StopReason.STOP_TOKEN
        elif request.most == request.sampling.max_tokens:
            reason = StopReason.TOKEN_LIMIT
        else:
            reason = StopReason.CONTEXT_FULL
        return Completion(ids=ids, logprobs=[min(p, 0.0) for p in logprobs], stop=reason)

    def _nonsense(self, what: str) -> ServerError:
        return ServerError(f"{self.url} sent {what}")


def _completion_body(model: str, request: Request) -> dict[str, Any]:
    """A request of answers.

    Whatever changes the distribution is named, since a server takes its own defaults from the
    model's generation_config.json. ignore_eos leaves our stop ids alone to end an answer.
    """
    sampling = request.sampling
    return {
        "model": model, "prompt": [list(ids) for ids in request.prompts],
        "max_tokens": request.most, "n": 1, "stream": False,
        "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k,
        "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "stop_token_ids": sorted(request.stop_ids), "ignore_eos": True,
        "logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True,
    }  # fmt: skip


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids)


def _are_logprobs(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(p, int | float) and math.isfinite(p) and _LEAST < p <= _ROUNDING for p in values
    )


def _error_message(answer: httpx2.Response) -> str:
    """What a server says in an error: vLLM's message, or its text unless that is a page."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        is_page = answer.text.lstrip().startswith("<")
        return "it answers with a page, so it may be no vLLM server" if is_page else answer.text


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
