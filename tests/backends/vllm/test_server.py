"""What a server may answer, and what is refused before anything is trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.tiny import lora_of, qwen
from tests.helpers.vllm_contract import ask_all, differences, recorded
from tests.helpers.vllm_server import SmallServer
from wordle_rl.backends.torch.adapters import save_adapter
from wordle_rl.backends.vllm.server import Request, Server, ServerError
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.paths import ROOT

TINY = ROOT / "wordle_rl" / "embedded" / "tiny"
REQUEST = Request(
    prompts=[[1, 2], [3]], sampling=Sampling(temperature=0.7, max_tokens=5), most=5,
    stop_ids=frozenset({60}), vocabulary=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Iterator[SmallServer]:
    with SmallServer(qwen(64).eval()) as server:
        yield server


@pytest.fixture(scope="module")
def server(small) -> Iterator[Server]:
    client = Server(small.url, timeout=20)
    yield client
    client.close()


@pytest.fixture
def adapter_of_tiny(tmp_path) -> str:
    save_adapter(lora_of(str(TINY)), tmp_path / "adapter")
    return str(tmp_path / "adapter")


def test_the_small_server_answers_as_the_real_one_did(adapter_of_tiny):
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    with SmallServer(model, AutoTokenizer.from_pretrained(TINY), name="tiny") as small:
        found = ask_all(small.url, adapter_of_tiny)
    expected = recorded()
    drawn = [i for i, entry in enumerate(expected) if _is_drawn(entry)]
    assert len(drawn) == 1 and len(found) == len(expected) > 10
    for place, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if place in drawn:
            assert mine["status"] == theirs["status"]
            [choice] = mine["answer"]["choices"]
            assert choice.keys() <= theirs["answer"]["choices"][0].keys()
        else:
            assert not differences(mine, theirs)


def _is_drawn(entry: dict[str, Any]) -> bool:
    return isinstance(entry["answer"], dict) and entry["answer"].get("model") == "mine"


def test_the_record_has_what_the_client_reads():
    answers = [entry["answer"] for entry in recorded() if entry["path"] == "/v1/completions"]
    whole = [answer["choices"] for answer in answers if "choices" in answer]
    assert [len(choices) for choices in whole] == [2, 1, 1]
    for choice in (choice for choices in whole for choice in choices):
        ids, logprobs = choice["token_ids"], choice["logprobs"]
        assert len(ids) == len(logprobs["token_logprobs"]) > 0
        assert logprobs["tokens"] == [f"token_id:{i}" for i in ids]


def test_a_request_names_everything_that_changes_the_distribution_and_no_seed(small, server):
    server.complete("base", REQUEST)
    body = small.asked[-1][1]
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.7, 1.0, 0, 0.0)
    assert body["repetition_penalty"] == 1.0 and body["ignore_eos"] is True
    assert body["presence_penalty"] == body["frequency_penalty"] == 0.0
    assert "seed" not in body and body["prompt"] == [[1, 2], [3]]


def change(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """A fault that changes the first answer. key: of the choice, or of its log-probabilities."""

    def fault(answer: dict[str, Any]) -> dict[str, Any]:
        choice = answer["choices"][0]
        place = choice["logprobs"] if key in choice["logprobs"] else choice
        place[key] = value(place[key]) if callable(value) else value
        return answer

    return fault


NONSENSE = {
    "no JSON": lambda answer: "<html>",
    "a list": lambda answer: [1],
    "no choices": lambda answer: {},
    "choices that are none": lambda answer: {"choices": 3},
    "an answer too few": lambda answer: {"choices": answer["choices"][:1]},
    "the same answer twice": lambda answer: {"choices": answer["choices"][:1] * 2},
    "an answer too many": lambda answer: {"choices": answer["choices"] + answer["choices"][:1]},
    "no tokens": change("token_ids", []),
    "tokens that are texts": change("token_ids", lambda ids: [str(i) for i in ids]),
    "tokens that are true": change("token_ids", lambda ids: [True] * len(ids)),
    "too many tokens": change("token_ids", lambda ids: ids * 3),
    "a token that the model lacks": change("token_ids", lambda ids: [*ids[:-1], 64]),
    "a negative token": change("token_ids", lambda ids: [-1, *ids[1:]]),
    "tokens behind the stop token": change("token_ids", lambda ids: [60, *ids[1:]]),
    "an answer cut short": change("token_ids", lambda ids: ids[:2]),
    "a log-probability too few": change("token_logprobs", lambda found: found[:-1]),
    "a log-probability that is none": change("token_logprobs", lambda found: [None, *found[1:]]),
    "a log-probability that is NaN": change("token_logprobs", lambda f: [math.nan, *f[1:]]),
    "a positive log-probability": change("token_logprobs", lambda found: [0.5, *found[1:]]),
    "an impossible token": change("token_logprobs", lambda found: [-9999.0, *found[1:]]),
    "log-probabilities of other tokens": change("tokens", lambda names: [*names[::-1], "x"]),
    "no log-probabilities": change("logprobs", None),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_in_one_line(small, server, name):
    # Without stop ids every answer has five tokens; 60 then counts as one in the check alone.
    request = REQUEST if "stop token" in name else _without_stops(REQUEST)
    small.faults = [NONSENSE[name]]
    with pytest.raises(ServerError) as refused:
        server.complete("base", request)
    assert small.url in str(refused.value) and "\n" not in str(refused.value)
    assert server.complete("base", request)  # the next answer is right again


def _without_stops(request: Request) -> Request:
    return Request(
        prompts=request.prompts, sampling=request.sampling, most=request.most,
        stop_ids=frozenset(), vocabulary=request.vocabulary,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("hang up", "cannot be reached"),
        ("crash", "refused /v1/completions with 500: EngineCore encountered an issue."),
        ("slow", "did not answer within 0.3 s"),
    ],
)
def test_a_server_that_fails_is_told_in_one_line(small, fault, said):
    small.slowness = 30.0
    small.faults = [fault]
    client = Server(small.url, timeout=0.3 if fault == "slow" else 20)
    with pytest.raises(ServerError, match=said):
        client.complete("base", REQUEST)
    client.close()


PAGES = {  # what an answer may be -> the end of the line
    "a page": ("<!DOCTYPE HTML>\n<html><h1>No such file</h1>" * 9, ": it answers with a page, so"),
    "a text": ("no such\nfile", "with 404: no such file"),
    "nothing": ("", "with 404"),
}


@pytest.mark.parametrize("kind", PAGES)
def test_what_is_no_server_is_told_in_one_short_line(kind):
    body, said = PAGES[kind]

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(404, text=body)

    client = Server("http://play", timeout=1)
    client._client = httpx2.Client(
        base_url=client.url, transport=httpx2.MockTransport(answer), trust_env=False
    )
    with pytest.raises(ServerError) as refused:
        client.models()
    client.close()
    line = str(refused.value)
    assert line.startswith("http://play refused /v1/models with 404") and said in line
    assert "<" not in line and len(line) < 110 and "\n" not in line


def test_an_unknown_adapter_is_told_as_the_server_tells_it(server):
    with pytest.raises(ServerError, match="404: The model `nobody` does not exist"):
        server.complete("nobody", REQUEST)


def test_log_probabilities_are_those_at_the_sampling_temperature(small, server):
    [first, _] = server.complete("base", _without_stops(REQUEST))
    small.raw_logprobs = True
    [second, _] = server.complete("base", _without_stops(REQUEST))
    small.raw_logprobs = False
    assert first.logprobs != second.logprobs
