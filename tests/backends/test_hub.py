"""Without a network a model of the hub ends in its one line at once, not after a minute."""

from __future__ import annotations

import time

import pytest
from huggingface_hub import constants

from wordle_rl.backends import hub


class ConnectError(Exception):
    """As the hub's HTTP library names it."""


class ConnectTimeout(Exception):
    """The same."""


@pytest.fixture
def asked(monkeypatch) -> list[BaseException | None]:
    """Outcomes of requests to come, the last of which repeats; what is left were not made."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    outcomes: list[BaseException | None] = []

    class Session:
        def head(self, url: str, timeout: float) -> None:
            assert url == constants.ENDPOINT and timeout >= 10.0
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome

    monkeypatch.setattr(hub, "get_session", Session)
    return outcomes


OUTCOMES = {  # of the requests, whether the hub is given up after them
    "reached": ([None], False),
    "reached at the third attempt": ([ConnectError(), ConnectError(), None], False),
    "slow": ([ConnectTimeout()], False),
    "no network": ([ConnectError()] * 3, True),
}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_only_a_hub_that_cannot_be_connected_to_is_given_up(kind, asked):
    outcomes, offline = OUTCOMES[kind]
    asked += outcomes
    hub.notice_offline("Nobody/NoModel")
    assert not asked and constants.is_offline_mode() is offline


def test_a_folder_and_offline_mode_ask_nobody(asked, tmp_path, monkeypatch):
    hub.notice_offline(str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.notice_offline("Nobody/NoModel")  # a request would fail, as no outcome is left


@pytest.mark.parametrize("backend", ["lightning", "mlx"])
def test_both_backends_ask_before_they_load(backend, monkeypatch):
    from wordle_rl.runs.instantiate import ConfigError

    seen = []
    if backend == "lightning":
        from wordle_rl.backends.torch import load as place

        load = lambda: place._load_pretrained("Nobody/NoModel", None)  # noqa: E731
    else:
        from wordle_rl.backends.mlx import load as place

        load = lambda: place.fetch_model("Nobody/NoModel")  # noqa: E731
    monkeypatch.setattr(place, "notice_offline", seen.append)
    with pytest.raises(ConfigError, match="hf download Nobody/NoModel"):
        load()
    assert seen == ["Nobody/NoModel"]
