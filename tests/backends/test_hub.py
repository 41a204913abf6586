"""Models of the hub: without a network they end in one line at once, not after a minute."""

import pytest
from huggingface_hub import constants

from wordle_rl.backends import loading


class ConnectError(Exception):
    """As the hub's HTTP library names it."""


class ConnectTimeout(Exception):
    """The same."""


@pytest.fixture
def asked(monkeypatch) -> list[BaseException | None]:
    """Outcomes of requests to come, the last of which repeats; what is left were not made."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    outcomes: list[BaseException | None] = []

    class Session:
        def head(self, url: str, timeout: float) -> None:
            assert url == constants.ENDPOINT and timeout >= 10.0
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome

    monkeypatch.setattr(loading, "get_session", Session)
    return outcomes


OUTCOMES = {  # of the requests, whether the hub is given up after them
    "reached": ([None], False),
    "slow": ([ConnectTimeout()], False),
    "no network": ([ConnectError()], True),
}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_only_a_hub_that_cannot_be_connected_to_is_given_up(kind, asked):
    outcomes, offline = OUTCOMES[kind]
    asked += outcomes
    loading.notice_offline("Nobody/NoModel")
    assert not asked and constants.is_offline_mode() is offline


def test_a_folder_and_offline_mode_ask_nobody(asked, tmp_path, monkeypatch):
    loading.notice_offline(str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    loading.notice_offline("Nobody/NoModel")  # a request would fail, as no outcome is left
