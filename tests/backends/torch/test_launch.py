"""How the processes that torchrun starts find, watch and trust each other."""

from __future__ import annotations

import os
import pickle
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wordle_rl.backends.torch import exchange, meeting, watch
from wordle_rl.backends.torch.meeting import (
    NotAllCame,
    choose_interface,
    connect_store,
    create_store,
    wait_for_all,
)
from wordle_rl.backends.torch.timing import count_cpu_threads
from wordle_rl.backends.torch.watch import Watch
from wordle_rl.game.rules import TurnKind
from wordle_rl.policy.settings import LightningSettings
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.launch import Launch, check_first_start, read_launch, without_launch
from wordle_rl.runs.processes import OneProcess

PLACE = Launch(rank=1, size=8, local_rank=1, local_size=4, address="10.0.0.1", port=29500)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in PLACE.variables().items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_process_knows_its_place_from_torchruns_variables(launched):
    assert read_launch() == PLACE
    settings = LightningSettings()
    assert (settings.processes, settings.processes_here) == (8, 4)
    launched.setenv("WORLD_SIZE", "1")  # torchrun with a single process
    assert read_launch() is None
    assert (settings.processes, settings.processes_here) == (1, 1)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LOCAL_RANK", None, "WORLD_SIZE=8 is in the environment without LOCAL_RANK"),
        ("RANK", "8", "RANK must be below WORLD_SIZE"),
        ("LOCAL_RANK", "4", "LOCAL_RANK below LOCAL_WORLD_SIZE"),
        ("MASTER_PORT", "http", "MASTER_PORT must be a whole number in the environment"),
        ("WORLD_SIZE", "many", "WORLD_SIZE must be a whole number in the environment"),
    ],
)
def test_variables_that_do_not_fit_are_one_line(name, value, said, launched):
    if value is None:
        launched.delenv(name)
    else:
        launched.setenv(name, value)
    with pytest.raises(ConfigError, match=said):
        read_launch()


def test_processes_that_torchrun_started_again_begin_no_second_run(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    check_first_start()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(ConfigError, match=r"continue the run with resume=latest"):
        check_first_start()


def test_a_child_of_a_study_is_a_process_of_its_own(launched):
    launched.setenv("TORCHELASTIC_RUN_ID", "1")
    left = without_launch(os.environ)
    assert set(os.environ) - set(left) == {*PLACE.variables(), "TORCHELASTIC_RUN_ID"}


def test_threads_are_shared_by_the_processes_of_a_machine(monkeypatch):
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert count_cpu_threads(2) == 4, "without torchrun the number is for all of them"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert count_cpu_threads(2) == 8, "with torchrun it is for each"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert count_cpu_threads(2) == max(cores // 2, 1), "torchrun sets 1 by itself"


# -- meeting --------------------------------------------------------------------------------------


@pytest.fixture
def launch() -> Any:
    store = create_store("127.0.0.1", 3)
    place = Launch(rank=0, size=3, local_rank=0, local_size=3, address="127.0.0.1", port=store.port)
    return store, place


def test_processes_that_do_not_come_are_named(launch, monkeypatch):
    store, place = launch
    monkeypatch.setattr(meeting, "_PATIENCE", 0.3)
    with pytest.raises(NotAllCame, match=r"processes 1 and 2 of 3 did not come within"):
        wait_for_all(store, place)
    store.set("host/1", "b")
    with pytest.raises(NotAllCame, match=r"process 2 of 3 did not come within"):
        wait_for_all(store, place)
    store.set("host/2", "c")
    assert wait_for_all(store, place)[1:] == ["b", "c"]


def test_a_meeting_point_that_does_not_answer_is_named(launch, monkeypatch):
    store, place = launch
    monkeypatch.setattr(meeting, "_PATIENCE", 0.3)
    del store
    with pytest.raises(
        NotAllCame, match=r"nothing answers at MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "
    ):
        connect_store(replace(place, port=1))


def test_processes_of_one_machine_talk_over_loopback(launch, monkeypatch):
    _, place = launch
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    choose_interface(place)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    choose_interface(replace(place, local_size=1))  # the way to 127.0.0.1 is the same interface
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    choose_interface(place)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7", "the user's choice stays"


# -- watching -------------------------------------------------------------------------------------


@pytest.fixture
def watching(launch, monkeypatch) -> Any:
    """Two watches of three processes, and what happened to them. The third never beats."""
    happened: list[Any] = []
    monkeypatch.setattr(watch, "_BEAT", 0.05)
    monkeypatch.setattr(watch, "_SILENCE", 1.0)

    def leave(code: int) -> None:
        happened.append(("exit", code))
        threading.Event().wait()  # the watching thread goes no further

    monkeypatch.setattr(watch.os, "_exit", leave)
    store, place = launch

    begun: list[Watch] = []

    def begin(rank: int) -> Watch:
        found = Watch(
            connect_store(place), replace(place, rank=rank), ["a", "b", "c"],
            stop=lambda signum: happened.append(("stop", signum)),
            lost=happened.append,
        )  # fmt: skip
        begun.append(found)
        return found

    yield begin, happened, store
    for found in begun:
        found._over.set()


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_a_process_without_a_sign_of_life_ends_the_first(watching):
    begin, happened, _ = watching
    begin(1)
    begun = time.monotonic()
    begin(0)
    wait_until(lambda: ("exit", 1) in happened)
    assert time.monotonic() - begun >= 1.0
    assert happened[0] == "process 2 on c was lost"


def test_the_first_process_learns_of_an_error_and_ends_the_others(watching):
    begin, happened, store = watching
    first, other = begin(0), begin(1)
    store.set("end/2", "1")
    wait_until(lambda: ("exit", 1) in happened)
    assert happened[0] == "process 2 on c ended with an error"
    first.leave(130)
    wait_until(lambda: ("exit", 130) in happened)
    other.leave(0)


def test_a_signal_reaches_the_first_process(watching):
    begin, happened, store = watching
    first, other = begin(0), begin(1)
    other._signum = 2
    wait_until(lambda: ("stop", 2) in happened)
    other.leave(0)
    store.set("end/2", "0")
    first.leave(0)


# -- what they send -------------------------------------------------------------------------------


def test_values_arrive_as_they_were_sent():
    sent = {
        "kinds": (next(iter(TurnKind)), None), "one": np.float32(2.5),
        "array": np.arange(6.0).reshape(2, 3), "set": {1, 2}, "place": PLACE, "text": "SLATE",
    }  # fmt: skip
    got = exchange.read(exchange.write(sent))
    assert np.array_equal(got.pop("array"), sent.pop("array")) and got == sent


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.mark.parametrize("value", [Evil(), os.system, getattr, OneProcess(), pickle.loads])
def test_what_could_run_a_program_is_not_read(value):
    with pytest.raises(pickle.UnpicklingError, match="which no run does"):
        exchange.read(pickle.dumps(value))
