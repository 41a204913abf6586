"""The engine on servers: what they are asked, what of them is refused, and who replaces whom."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers.tiny import lora_of, qwen
from tests.helpers.vllm_server import LOAD, SmallServer, served_by
from wordle_rl.backends import vllm
from wordle_rl.backends.torch.load import save_adapter
from wordle_rl.backends.vllm import Request, Server, ServerError, VllmEngine
from wordle_rl.policy.engine import EngineLost
from wordle_rl.policy.sampling import Sampling
from wordle_rl.runs.interrupts import Interrupted

REQUEST = Request(
    prompts=[[1, 2], [3]],
    sampling=Sampling(temperature=0.7, max_tokens=5),
    most=5,
    stop_ids=frozenset(),
    vocabulary=340,
)


@pytest.fixture(scope="module")
def adapter(model_folder, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("adapter")
    save_adapter(lora_of(model_folder), path)
    return str(path)


@pytest.fixture
def servers() -> Iterator[list[SmallServer]]:
    fleet = [SmallServer(qwen(340).eval(), seed=seed) for seed in range(2)]
    yield fleet
    for server in fleet:
        server.close()


@pytest.fixture
def started(servers, adapter, monkeypatch) -> Iterator[Callable[..., VllmEngine]]:
    """Makes an engine on the servers that pauses for a hundredth of the time."""
    monkeypatch.setattr(vllm, "_PAUSE", 0.01)
    engines = []

    def start(**settings: Any) -> VllmEngine:
        engines.append(served_by(servers, **{"prompts_at_once": 1, **settings}))
        engines[-1].load(adapter)
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def ask(engine: VllmEngine, count: int) -> list[list[int]]:
    """The ids of answers to so many equal prompts."""
    greedy = Sampling(temperature=0.0, max_tokens=4)
    return [row.ids for row in engine.complete([[1, 2]] * count, greedy, np.zeros((count, 4)))]


def counts(servers: list[SmallServer]) -> list[int]:
    return [server.count() for server in servers]


# -- one server -----------------------------------------------------------------------------------


def test_a_request_names_everything_that_changes_the_distribution_and_no_seed():
    body = replace(REQUEST, stop_ids=frozenset({9})).body("base")
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.7, 1.0, 0, 0.0)
    assert body["repetition_penalty"] == 1.0 and body["ignore_eos"] is True
    assert body["presence_penalty"] == body["frequency_penalty"] == 0.0
    assert body["stop_token_ids"] == [9] and "seed" not in body


def change(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """A fault that changes the first answer. key: of the choice, or of its log-probabilities."""

    def fault(answer: dict[str, Any]) -> dict[str, Any]:
        choice = answer["choices"][0]
        place = choice["logprobs"] if key in choice["logprobs"] else choice
        place[key] = value(place[key]) if callable(value) else value
        return answer

    return fault


FAULTS: dict[str, Any] = {
    "hang up": "hang up",
    "crash": "crash",
    "slow": "slow",
    "no JSON": lambda answer: "<html>",
    "a list": lambda answer: [1],
    "choices that are none": lambda answer: {"choices": 3},
    "an answer too few": lambda answer: {"choices": answer["choices"][:1]},
    "no tokens": change("token_ids", []),
    "tokens that are texts": change("token_ids", lambda ids: [str(i) for i in ids]),
    "too many tokens": change("token_ids", lambda ids: ids * 3),
    "a token that the model lacks": change("token_ids", lambda ids: [*ids[:-1], 340]),
    "tokens behind the stop token": change("token_ids", lambda ids: [99, *ids[1:]]),
    "an answer cut short": change("token_ids", lambda ids: ids[:2]),
    "a log-probability too few": change("token_logprobs", lambda values: values[:-1]),
    "a log-probability that is none": change("token_logprobs", lambda values: [None, *values[1:]]),
    "a log-probability that is NaN": change("token_logprobs", lambda f: [math.nan, *f[1:]]),
    "a positive log-probability": change("token_logprobs", lambda values: [0.5, *values[1:]]),
    "an impossible token": change("token_logprobs", lambda values: [-9999.0, *values[1:]]),
    "log-probabilities of other tokens": change("tokens", lambda names: names[::-1]),
    "no log-probabilities": change("logprobs", None),
}


def test_what_cannot_be_trained_on_is_refused_in_one_line(servers):
    # Answers have five tokens. 99 counts as a stop token in the check alone.
    request = replace(REQUEST, stop_ids=frozenset({99}))
    request.body = lambda model: REQUEST.body(model)
    server = servers[0]
    client, fast_client = Server(server.url, timeout=60.0), Server(server.url, timeout=0.5)
    for name, fault in FAULTS.items():
        server.faults = [fault]
        with pytest.raises(ServerError) as error:
            (fast_client if fault == "slow" else client).complete("base", request)
        assert server.url in str(error.value) and "\n" not in str(error.value), name
    with pytest.raises(ServerError, match="404: The model `nobody` does not exist"):
        client.complete("nobody", request)
    assert client.complete("base", request)
    client.client.close(), fast_client.client.close()


# -- several servers ------------------------------------------------------------------------------


def test_prompts_are_dealt_to_the_servers_in_blocks(servers, started):
    engine, before = started(), counts(servers)
    assert len(set(map(tuple, ask(engine, 6)))) == 1
    assert [b - a for a, b in zip(before, counts(servers), strict=True)] == [3, 3]


@pytest.mark.parametrize("fault", ["hang up", "crash", lambda answer: {"choices": []}])
def test_the_other_server_answers_what_one_failed_to(servers, started, adapter, capsys, fault):
    engine = started()
    expected = ask(engine, 6)
    servers[0].faults = [fault]
    assert ask(engine, 6) == expected
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {servers[0].url}") and "the other servers play" in line
    before = counts(servers)
    ask(engine, 6)
    assert counts(servers)[0] == before[0], "it plays no more until the next adapter"
    engine.load(adapter)
    assert f"{servers[0].url} plays again" in capsys.readouterr().err
    ask(engine, 6)
    assert counts(servers)[0] == before[0] + 1 + 3, "one comparison, three prompts"


def test_a_slow_server_costs_its_time_limit_once(servers, started):
    engine = started(timeout=4.0)  # the server sleeps for six seconds, the other one answers
    servers[0].faults = ["slow"] * 9
    ask(engine, 2)
    ask(engine, 8)
    assert len(servers[0].faults) == 8


def test_the_only_server_gets_the_adapter_again_before_it_plays_on(servers, started):
    servers.pop().close()
    engine = started()
    servers[0].adapters.clear()  # as after a restart
    assert ask(engine, 1) and servers[0].count(LOAD) == 2


def test_without_any_server_the_engine_is_lost_with_both_reasons(servers, started):
    engine = started(retries=2)
    servers[0].faults = ["crash"] * 99
    servers[1].close()
    with pytest.raises(EngineLost) as error:
        ask(engine, 3)
    text = str(error.value)
    assert text.startswith("no vLLM server answers after 2 retries: ") and "\n" not in text
    assert all(server.url in text for server in servers) and "EngineCore" in text


def test_a_server_that_only_sends_nonsense_is_given_up(servers, started):
    servers.pop().close()
    engine, before = started(retries=3), servers[0].count()
    # Its answer to each comparison is right, and every game is wrong.
    servers[0].faults = [lambda answer: {"choices": []}, lambda answer: answer] * 20
    with pytest.raises(EngineLost, match="sent what cannot be used"):
        ask(engine, 1)
    assert servers[0].count() - before <= 2 * 4


def test_a_server_that_comes_back_with_another_model_never_plays(servers, started, adapter):
    def compare(url: str, answers: Any) -> None:
        if url == servers[0].url and changed:
            raise ServerError(f"{url} differs from the trainer")

    changed = False
    engine = started(compare=compare)
    servers[0].faults = ["crash"]
    ask(engine, 2)
    changed = True
    engine.load(adapter)
    before = counts(servers)
    ask(engine, 6)
    assert counts(servers)[0] == before[0]


def test_a_signal_ends_the_wait_for_servers(servers, started):
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 3:
            raise Interrupted(2)

    engine = started(retries=1000, check=check)
    for server in servers:
        server.close()
    with pytest.raises(Interrupted):
        ask(engine, 2)
