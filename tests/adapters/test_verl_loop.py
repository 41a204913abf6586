"""The agent loop for verl against a server that answers from a list, with and without verl."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.helpers.configs import composed
from tests.helpers.verl import stand_in
from wordle_rl.adapters.api import build_knowledge, build_rewards
from wordle_rl.adapters.verl.game import build_game, choose_settings
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Game, marks
from wordle_rl.policy.settings import locate
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

TINY = locate("embedded/tiny")


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    """wordle_rl.adapters.verl.loop on verl, or on stand-ins for its classes."""
    name = "wordle_rl.adapters.verl.loop"
    if stand_in.installed():
        yield importlib.import_module(name)
        return
    with pytest.MonkeyPatch.context() as patch:
        for module, stand in stand_in.modules().items():
            patch.setitem(sys.modules, module, stand)
        yield importlib.import_module(name)
    del sys.modules[name]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(TINY)


@dataclass
class Server:
    """Gives answers in turn, as a rollout server of verl would."""

    tokenizer: Any
    answers: list[str]
    stop: bool = True  # whether answers end by themselves
    logprobs: bool = True
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> Any:
        self.requests.append({"id": request_id, "prompt": list(prompt_ids), **sampling_params})
        number = len(self.requests)
        ids = self.tokenizer.encode(self.answers[number - 1], add_special_tokens=False)
        ids = [*ids, self.tokenizer.eos_token_id] if self.stop else ids
        ids = ids[: sampling_params["max_tokens"]]
        return SimpleNamespace(
            token_ids=ids,
            log_probs=[-number - i / 100 for i in range(len(ids))] if self.logprobs else None,
            extra_fields={"min_global_steps": number, "max_global_steps": number},
        )


def settings_of(*overrides: str) -> dict[str, Any]:
    config = composed("model=tiny", "reward=phase2", *overrides)
    return choose_settings(build_experiment(resolve(config)))


def row_of(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The columns of a row on the first training secret."""
    secret = build_game(settings).splits.train[0]
    info = {"split": "train", "index": 0, "secret": secret, "clues": ""}
    return {"extra_info": {**info, "splits": settings["splits"], **changes}, "raw_prompt": []}


def run(cls: Any, server: Server, settings: dict[str, Any], row: dict[str, Any]) -> Any:
    """What the loop returns for a row."""
    config = OmegaConf.create(
        {"actor_rollout_ref": {"model": {"path": TINY}, "rollout": {"response_length": 512}}}
    )

    async def once() -> Any:
        loop = cls(
            trainer_config=SimpleNamespace(config=config),
            server_manager=server,
            tokenizer=server.tokenizer,
            processor=None,
            dataset_cls=None,
            data_config=SimpleNamespace(config=OmegaConf.create({})),
            game=settings,
        )
        return await loop.run({"temperature": 1.0, "top_p": 1.0}, **row)

    return asyncio.run(once())


def guess(word: str) -> str:
    return f"<guess>{word}</guess>"


def other_word(settings: dict[str, Any]) -> str:
    return build_game(settings).splits.train[1]


def test_a_whole_game_is_one_rollout_whose_mask_covers_the_drawn_tokens(adapter, tokenizer):
    settings = settings_of()
    row = row_of(settings)
    secret = row["extra_info"]["secret"]
    server = Server(tokenizer, [guess(other_word(settings)), guess(secret), guess("crane")])
    output = run(adapter.WordleLoop, server, settings, row)
    assert len(server.requests) == 2, "a won game ends"
    first, second = (request["prompt"] for request in server.requests)
    assert output.prompt_ids == first
    whole = output.prompt_ids + output.response_ids
    assert whole[: len(second)] == second
    drawn = [i for i, mark in zip(output.response_ids, output.response_mask, strict=True) if mark]
    stop = tokenizer.eos_token_id
    texts = [tokenizer.encode(text, add_special_tokens=False) for text in server.answers[:2]]
    assert drawn == [*texts[0], stop, *texts[1], stop]
    marks = zip(output.response_logprobs, output.response_mask, strict=True)
    assert all((logprob < 0) == bool(mark) for logprob, mark in marks)
    assert output.response_mask[-1] == 1 and 0 in output.response_mask
    assert output.num_turns == 4


def test_the_reward_is_the_sum_over_the_turns_with_its_breakdown(adapter, tokenizer):
    settings = settings_of()
    row = row_of(settings)
    secret, other = row["extra_info"]["secret"], other_word(settings)
    server = Server(tokenizer, [guess(other), guess(secret)])
    output = run(adapter.WordleLoop, server, settings, row)
    knowledge = build_knowledge()
    game = Game(secret, knowledge.words.allowed_set)
    for word in (other, secret):
        game.play(word, text=guess(word), tokens=2)
    expected = build_rewards("phase2", knowledge).score(game)
    assert output.reward_score == pytest.approx(expected.total)
    parts = output.extra_fields["reward_extra_info"]
    assert parts["acc"] == 1.0 and parts["guesses"] == 2.0
    assert sum(v for k, v in parts.items() if k.startswith("reward_")) == pytest.approx(
        expected.total
    )
    assert parts["reward_win"] == expected.components["win"]


def test_rewards_that_are_overwritten_between_turns_are_refused(adapter, tokenizer):
    class Overwriting(adapter.WordleLoop):
        def sum_up(self, turns):
            for turn in turns:
                total = turn  # each turn's reward takes the place of the last one's
            return total

    settings = settings_of()
    row = row_of(settings)
    answers = [guess(other_word(settings)), guess(row["extra_info"]["secret"])]
    with pytest.raises(ValueError, match=r"must be the sum over its turns, .* not") as refused:
        run(Overwriting, Server(tokenizer, answers), settings, row)
    assert "\n" not in str(refused.value)


def test_the_oldest_and_the_newest_weights_of_a_game_are_kept(adapter, tokenizer):
    settings = settings_of()
    server = Server(tokenizer, [guess(other_word(settings))] * 6)
    output = run(adapter.WordleLoop, server, settings, row_of(settings))
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (
        1,
        6,
    )
    assert len({request["id"] for request in server.requests}) == 1, "one server keeps the prefix"
    assert output.extra_fields["reward_extra_info"]["acc"] == 0.0


def test_the_server_gets_the_limits_and_stop_tokens_and_the_sampling_of_verl(adapter, tokenizer):
    settings = settings_of("sampling.max_tokens=9", "model.max_context=40")
    server = Server(tokenizer, [guess("crane")] * 6)
    output = run(adapter.WordleLoop, server, settings, row_of(settings))
    used = [len(request["prompt"]) for request in server.requests]
    asked = [request["max_tokens"] for request in server.requests]
    assert asked == [min(9, 40 - length) for length in used] and asked[-1] < 9
    assert len(output.prompt_ids) + len(output.response_ids) <= 40
    assert len(used) < 6, "the game is lost where its context is full"
    first = server.requests[0]
    assert first["stop_token_ids"] == [tokenizer.eos_token_id]
    assert (first["temperature"], first["top_p"]) == (1.0, 1.0)


def test_an_answer_that_was_cut_off_is_no_guess(adapter, tokenizer):
    settings = settings_of()
    row = row_of(settings)
    server = Server(tokenizer, [guess(row["extra_info"]["secret"])] * 6, stop=False)
    output = run(adapter.WordleLoop, server, settings, row)
    assert output.extra_fields["reward_extra_info"]["acc"] == 0.0


def test_a_game_that_begins_in_the_middle_shows_its_earlier_guesses(adapter, tokenizer):
    settings = settings_of("history=upto4")
    row = row_of(settings)
    secret, other = row["extra_info"]["secret"], other_word(settings)
    row["extra_info"]["clues"] = f"{other} {marks(other, secret)}"
    server = Server(tokenizer, [guess("crane")] * 6)
    run(adapter.WordleLoop, server, settings, row)
    assert len(server.requests) == 5
    assert guess(other) in tokenizer.decode(server.requests[0]["prompt"])


def test_long_answers_cost_what_the_algorithm_says(adapter, tokenizer):
    settings = settings_of("algorithm=dapo", "sampling.max_tokens=8")
    row = row_of(settings)
    text = "crane " * 2 + guess(row["extra_info"]["secret"])
    ids = tokenizer.encode(text, add_special_tokens=False)
    settings = settings_of("algorithm=dapo", f"sampling.max_tokens={len(ids) + 1}")
    output = run(adapter.WordleLoop, Server(tokenizer, [text]), settings, row)
    parts = output.extra_fields["reward_extra_info"]
    assert parts["reward_overlong"] == pytest.approx(-1.0)
    assert output.reward_score == pytest.approx(
        sum(value for name, value in parts.items() if name.startswith("reward_"))
    )


SPLITS = split_secrets(load_words())
TRAIN, VAL = SPLITS.train[0], SPLITS.val[0]
WRONG_ROWS = {
    "a row must have extra_info.secret": {"secret": None},
    f"{TRAIN} is among the val secrets but is none": {"split": "val"},
    f"{VAL} is a val secret and must not be trained on": {"secret": VAL},
    "a row of another split of the secrets": {"splits": "0" * 64},
    "extra_info.split must be train, val, test": {"split": "dev"},
}


@pytest.mark.parametrize("said", WRONG_ROWS)
def test_rows_that_break_a_rule_are_refused_whoever_wrote_them(said, adapter, tokenizer):
    settings = settings_of()
    row = row_of(settings, **WRONG_ROWS[said])
    with pytest.raises(ValueError, match=said) as refused:
        run(adapter.WordleLoop, Server(tokenizer, [guess("crane")] * 6), settings, row)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"logprobs": False}, "rollout.calculate_log_probs must be true"),
        ({"answers": [""], "stop": False}, "must have 1 to 12 tokens, not 0"),
    ],
)
def test_answers_that_cannot_be_trained_on_are_refused(server, said, adapter, tokenizer):
    settings = settings_of()
    given = {"answers": [guess("crane")] * 6, **server}
    with pytest.raises(ValueError, match=said):
        run(adapter.WordleLoop, Server(tokenizer, **given), settings, row_of(settings))


def test_a_node_with_other_word_lists_is_refused(adapter, tokenizer):
    settings = {**settings_of(), "splits": "0" * 64}
    with pytest.raises(ValueError, match="words must be the lists that the files were written"):
        run(adapter.WordleLoop, Server(tokenizer, []), settings, row_of(settings_of()))


def test_the_word_lists_are_read_once_for_all_games_of_a_process(adapter, tokenizer, monkeypatch):
    settings = settings_of("seed=7")
    built = []
    monkeypatch.setattr(adapter, "build_game", lambda s: built.append(s) or build_game(s))
    adapter._build_game.cache_clear()
    for _ in range(3):
        server = Server(tokenizer, [guess("crane")] * 6)
        run(adapter.WordleLoop, server, settings, row_of(settings))
    assert len(built) == 1


@pytest.mark.skipif(not stand_in.installed(), reason="verl is not installed: make verl")
def test_the_stand_ins_are_like_verls_own_classes():
    import inspect

    real = importlib.import_module(stand_in.MODULE)
    taken = inspect.signature(real.AgentLoopBase.__init__).parameters
    ours = inspect.signature(stand_in.AgentLoopBase.__init__).parameters
    assert [n for n in ours if n != "kwargs"] == [*taken][: len(ours) - 1]
    for name in ("AgentLoopOutput", "AgentLoopMetrics"):
        fields = {f.name for f in dataclasses.fields(getattr(stand_in, name))}
        assert fields <= set(getattr(real, name).model_fields)
