"""Models of the hub: without a network they end in one line at once, not after a minute."""

from __future__ import annotations

import json
from typing import Any

import pytest
from huggingface_hub import constants

from wordle_rl.backends import loading
from wordle_rl.backends.hf_tokenizer import read_stop_ids
from wordle_rl.policy.settings import ModelSettings


def settings_of(path: str, revision: str = "main") -> ModelSettings:
    return ModelSettings(
        name="m", path=path, revision=revision, learning_rate=1e-3, max_tokens=8, max_context=64
    )


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


def test_torch_asks_the_hub_for_the_revision_in_every_call(model_folder, monkeypatch):
    from wordle_rl.backends.torch import load as place

    seen: dict[str, str] = {}

    class Hub:
        """Stands in for a class of transformers: notes the revision and reads a local folder."""

        def __init__(self, name: str) -> None:
            self._name, self._real = name, getattr(place, name)

        def from_pretrained(self, location: str, *, revision: str, **options: Any) -> Any:
            seen[self._name] = revision
            return self._real.from_pretrained(model_folder, **options)

        def get_config_dict(self, location: str, *, revision: str) -> Any:
            seen[self._name] = revision
            return self._real.get_config_dict(model_folder)

    names = ("AutoConfig", "PreTrainedConfig", "AutoTokenizer", "AutoModelForCausalLM")
    for name in names:
        monkeypatch.setattr(place, name, Hub(name))
    monkeypatch.setattr(place, "notice_offline", lambda _: None)
    place._load_pretrained(settings_of("Some/Model", "v1.2"), None, {})
    assert seen == dict.fromkeys(names, "v1.2")


@pytest.mark.parametrize("given", [7, [7, 9], None])
def test_a_generation_config_may_have_one_several_or_no_stop_ids(given, tmp_path):
    assert read_stop_ids(str(tmp_path)) == ()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
    expected = (given,) if isinstance(given, int) else tuple(given or ())
    assert read_stop_ids(str(tmp_path)) == expected


def test_a_revision_without_a_hub_name_is_refused(model_folder):
    settings_of("Some/Model", "v1.2")
    for path in (model_folder, "embedded/tiny"):
        with pytest.raises(ValueError, match=r"model\.revision must be main unless .* 'v1\.2'"):
            settings_of(path, "v1.2")
    with pytest.raises(ValueError, match=r"model\.revision must be a branch"):
        settings_of("Some/Model", "a b")
