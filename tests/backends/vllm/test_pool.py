"""Several servers play as one, and a request that failed is answered by another server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.tiny import lora_of, qwen
from tests.helpers.vllm_server import SmallServer
from wordle_rl.backends.torch.adapters import save_adapter
from wordle_rl.backends.vllm import pool as pools
from wordle_rl.backends.vllm.pool import Adapter, Job, Pool
from wordle_rl.backends.vllm.server import Request, ServerError
from wordle_rl.policy.engine import EngineLost
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import ServerSettings
from wordle_rl.runs.interrupts import Interrupted

REQUEST = Request(
    prompts=[[1, 2]], sampling=Sampling(temperature=0.0, max_tokens=4), most=4,
    stop_ids=frozenset(), vocabulary=340,
)  # fmt: skip


@pytest.fixture
def servers(adapter) -> Iterator[list[SmallServer]]:
    several = [SmallServer(qwen(340).eval(), seed=seed) for seed in range(2)]
    yield several
    for server in several:
        server.stop()


@pytest.fixture
def adapter(model_folder, tmp_path) -> Adapter:
    save_adapter(lora_of(model_folder), tmp_path / "adapter")
    return Adapter(name="mine", path=str(tmp_path / "adapter"))


@pytest.fixture
def pooled(servers, adapter, monkeypatch) -> Iterator[Callable[..., Pool]]:
    """Makes a pool of the servers, which pauses for a hundredth of the time."""
    made = []
    wait = pools.Pool._sleep
    monkeypatch.setattr(pools.Pool, "_sleep", lambda pool, seconds: wait(pool, seconds / 100))

    def build(compare: Any = lambda url, drawn: None, **settings: Any) -> Pool:
        check = settings.pop("check", lambda: None)
        given = ServerSettings(urls=[s.url for s in servers], **{"timeout": 5.0, **settings})
        pool = Pool(given, probe=REQUEST, compare=compare, check=check)
        made.append(pool)
        pool.begin(adapter)
        return pool

    yield build
    for pool in made:
        pool.close()


def jobs(count: int) -> list[Job]:
    return [Job(place=i % 2, request=REQUEST) for i in range(count)]


def played(servers: list[SmallServer]) -> list[int]:
    """How many requests of answers each server got."""
    return [server.count("/v1/completions") for server in servers]


def test_requests_are_dealt_to_the_servers_in_turn(servers, pooled):
    pool = pooled()
    before = played(servers)
    answers = pool.answer(jobs(6))
    assert [b - a for a, b in zip(before, played(servers), strict=True)] == [3, 3]
    assert len(answers) == 6 and len({tuple(one.ids) for [one] in answers}) == 1


@pytest.mark.parametrize("fault", ["hang up", "crash", lambda answer: {"choices": []}])
def test_the_other_server_answers_what_one_failed_to(servers, pooled, capsys, fault):
    pool = pooled()
    [[expected]] = pool.answer(jobs(1))
    servers[0].faults = [fault]
    answers = pool.answer(jobs(6))
    assert [one for [one] in answers] == [expected] * 6
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {servers[0].url}") and "the other servers play" in line


@pytest.mark.slow
def test_a_slow_server_costs_its_time_limit_once(servers, pooled):
    pool = pooled(timeout=3.0)
    servers[0].slowness, servers[0].faults = 60.0, ["slow"] * 9
    assert len(pool.answer(jobs(2))) == 2
    pool.answer(jobs(8))
    assert len(servers[0].faults) == 8


def test_a_server_that_was_down_plays_again_from_the_next_adapter_on(servers, pooled, capsys):
    pool = pooled()
    servers[0].faults = ["crash"]
    pool.answer(jobs(4))
    before = played(servers)
    pool.answer(jobs(4))
    assert played(servers)[0] == before[0]
    pool.load(pool._adapter)
    assert f"{servers[0].url} plays again" in capsys.readouterr().err
    pool.answer(jobs(4))
    assert played(servers)[0] > before[0] + 1  # more than the probe


def test_the_only_server_gets_the_adapter_again_before_it_plays_on(servers, pooled):
    servers[1].stop()
    servers.pop()
    pool = pooled()
    servers[0]._adapters.clear()  # as after a restart
    loads = servers[0].count("/v1/load_lora_adapter")
    [[answer]] = pool.answer(jobs(1))
    assert answer.ids and servers[0].count("/v1/load_lora_adapter") == loads + 1


def test_without_any_server_the_engine_is_lost_with_both_reasons(servers, pooled):
    pool = pooled(retries=2)
    servers[0].faults = ["crash"] * 99
    servers[1].stop()
    with pytest.raises(EngineLost) as lost:
        pool.answer(jobs(3))
    text = str(lost.value)
    assert text.startswith("no vLLM server answers after 2 retries: ") and "\n" not in text
    assert all(server.url in text for server in servers) and "EngineCore" in text


def test_a_server_that_only_sends_nonsense_is_given_up(servers, pooled):
    servers[1].stop()
    servers.pop()
    seen: Counter[str] = Counter()

    def forget(answer: dict[str, Any]) -> dict[str, Any]:
        seen["nonsense"] += 1
        return {"choices": []}

    pool = pooled(retries=3)
    # The probe after each reload is right, and every game is wrong.
    servers[0].faults = [forget, lambda answer: answer] * 20
    with pytest.raises(EngineLost, match="other answers than were asked for"):
        pool.answer(jobs(1))
    assert seen["nonsense"] == 4


def test_a_server_that_comes_back_with_another_model_never_plays(servers, pooled):
    fits = True

    def compare(url: str, drawn: Any) -> None:
        if url == servers[0].url and not fits:
            raise ServerError(f"{url} differs from the trainer")

    pool = pooled(compare)
    servers[0].faults = ["crash"]
    pool.answer(jobs(2))
    fits = False
    pool.load(pool._adapter)
    before = played(servers)
    pool.answer(jobs(6))
    assert played(servers)[0] == before[0]


def test_a_signal_ends_the_wait_for_servers(servers, pooled):
    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) > 3:
            raise Interrupted(2)

    pool = pooled(retries=1000, check=check)
    for server in servers:
        server.stop()
    with pytest.raises(Interrupted):
        pool.answer(jobs(2))


def test_the_adapter_is_forgotten_at_the_end(servers, pooled):
    pool = pooled()
    pool.close()
    assert [server.count("/v1/unload_lora_adapter") for server in servers] == [1, 1]
