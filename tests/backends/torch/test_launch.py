"""How the processes of a run find and trust each other."""

import os
import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from wordle_rl.backends.torch import processes
from wordle_rl.backends.torch.processes import ProcessLost, join_processes
from wordle_rl.game.rules import TurnKind
from wordle_rl.policy.settings import LightningSettings
from wordle_rl.runs import exchange
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.processes import (
    Launch,
    Processes,
    check_first_start,
    read_launch,
    without_launch,
)

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


def test_processes_that_torchrun_started_again_begin_no_second_run(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    check_first_start()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(ConfigError, match=r"continue the run with resume=latest"):
        check_first_start()


def test_a_child_of_a_study_is_a_process_of_its_own(launched):
    launched.setenv("TORCHELASTIC_RUN_ID", "1")
    variables = without_launch(os.environ)
    assert set(os.environ) - set(variables) == {*PLACE.variables(), "TORCHELASTIC_RUN_ID"}


# -- meeting --------------------------------------------------------------------------------------


def test_processes_that_do_not_come_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_COME", timedelta(seconds=0.3))
    place = Launch(rank=0, size=3, local_rank=0, local_size=3, address="127.0.0.1", port=0)
    with (
        pytest.raises(ProcessLost, match=r"processes 1, 2 of 3 did not join;"),
        join_processes(place, str(tmp_path / "meeting")),
    ):
        pass


def test_a_meeting_point_that_does_not_answer_is_named(launched, monkeypatch):
    monkeypatch.setattr(processes, "_COME", timedelta(seconds=0.3))
    launched.setenv("MASTER_ADDR", "127.0.0.1")
    launched.setenv("MASTER_PORT", "1")
    place = read_launch()
    assert place is not None
    with (
        pytest.raises(ProcessLost, match=r"nothing answers at MASTER_ADDR=127.0.0.1 MASTER_PORT=1"),
        join_processes(place),
    ):
        pass


def test_processes_of_one_machine_talk_over_loopback():
    place = Launch(rank=0, size=3, local_rank=0, local_size=3, address="127.0.0.1", port=29500)
    processes._choose_interface(place)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    del os.environ["GLOO_SOCKET_IFNAME"]
    processes._choose_interface(replace(place, local_size=1))  # the way to 127.0.0.1 is the same
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    os.environ["GLOO_SOCKET_IFNAME"] = "eth7"
    processes._choose_interface(place)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7", "the user's choice stays"


# -- what they send -------------------------------------------------------------------------------


def test_values_arrive_as_they_were_sent():
    values = {
        "kinds": (next(iter(TurnKind)), None),
        "one": np.float32(2.5),
        "array": np.arange(6.0).reshape(2, 3),
        "set": {1, 2},
        "range": range(2, 5),
        "place": PLACE,
        "text": "SLATE",
    }
    result = exchange.read(pickle.dumps(values))
    assert np.array_equal(result.pop("array"), values.pop("array")) and result == values


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.mark.parametrize("value", [Evil(), os.system, getattr, Processes(), pickle.loads])
def test_what_could_run_a_program_is_not_read(value):
    with pytest.raises(pickle.UnpicklingError, match="which no run sends or keeps"):
        exchange.read(pickle.dumps(value))
