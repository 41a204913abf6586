"""The agent loop for verl against a server that answers from a list or by a model."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.helpers.configs import composed
from wordle_rl.adapters.verl_files import choose_settings
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import marks
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.policy.settings import locate
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets

TINY = locate("embedded/tiny")
SPLITS = split_secrets(load_words())
SECRET, OTHER, VAL = *SPLITS.train[:2], SPLITS.val[0]


LOOP, VERL = "wordle_rl.adapters.verl_loop", "verl.experimental.agent_loop.agent_loop"


class StandIn:
    """verl's base class of a loop, as far as ours uses it."""

    def __init__(
        self, *, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any
    ) -> None:
        self.config, self.server_manager = trainer_config.config, server_manager
        self.tokenizer = tokenizer


@pytest.fixture(scope="module")
def adapter() -> Iterator[Any]:
    """wordle_rl.adapters.verl_loop on verl, or on stand-ins where it is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("verl") is None:
            module: Any = ModuleType(VERL)
            module.AgentLoopBase = StandIn
            module.AgentLoopOutput = module.AgentLoopMetrics = SimpleNamespace
            for name in itertools.accumulate(VERL.split("."), "{}.{}".format):
                patch.setitem(sys.modules, name, module)
        yield importlib.import_module(LOOP)
        sys.modules.pop(LOOP)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(TINY)


class Server:
    """Gives what `answer` draws for the ids so far, as a rollout server of verl would."""

    def __init__(self, answer: Callable[[list[int], int], Any]) -> None:
        """answer: takes the prompt and the most tokens. Returns ids and log-probabilities."""
        self.answer, self.requests = answer, []

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> Any:
        self.requests.append({"id": request_id, "prompt": list(prompt_ids), **sampling_params})
        ids, logprobs = self.answer(list(prompt_ids), sampling_params["max_tokens"])
        steps = dict.fromkeys(("min_global_steps", "max_global_steps"), len(self.requests))
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, extra_fields=steps)


def says(tokenizer: Any, *answers: str) -> Server:
    """A server that gives these answers in turn."""
    number = iter(range(1, 100))

    def answer(prompt: list[int], most: int) -> tuple[list[int], list[float]]:
        place = next(number)
        ids = tokenizer.encode(answers[place - 1], add_special_tokens=False)
        ids = [*ids, tokenizer.eos_token_id][:most]
        return ids, [-place - i / 100 for i in range(len(ids))]

    return Server(answer)


def settings_of(*overrides: str) -> dict[str, Any]:
    config = composed("model=tiny", "reward=phase2", *overrides)
    return choose_settings(build_experiment(resolve(config)))


def row_of(**changes: Any) -> dict[str, Any]:
    """The columns of a row on the first training secret."""
    info = {"split": "train", "index": 0, "secret": SECRET, "past_guesses": "[]"}
    return {"extra_info": {**info, "splits": SPLITS.digest, **changes}, "raw_prompt": []}


@pytest.fixture
def run(adapter, tokenizer) -> Callable[..., Any]:
    """Plays a row. Returns what the loop returns."""
    paths = {"model": {"path": TINY}, "rollout": {"response_length": 512}}
    config = OmegaConf.create({"actor_rollout_ref": paths})

    async def once(server: Server, settings: dict[str, Any], row: dict[str, Any]) -> Any:
        loop = adapter.WordleLoop(
            trainer_config=SimpleNamespace(config=config), server_manager=server,
            tokenizer=tokenizer, processor=None, dataset_cls=None,
            data_config=SimpleNamespace(config=OmegaConf.create({})), game=settings,
        )  # fmt: skip
        return await loop.run({"temperature": 1.0, "top_p": 1.0}, **row)

    return lambda server, settings, row: asyncio.run(once(server, settings, row))


def guess(word: str) -> str:
    return f"<guess>{word}</guess>"


@pytest.mark.parametrize(
    ("rollout", "context"), [("game", 60), ("game", 512), ("turn", 512)],
    ids=["full context", "much room", "one answer"],
)  # fmt: skip
def test_its_games_are_those_of_our_own_player_token_by_token(
    adapter, run, tokenizer, rollout, context
):
    from transformers import AutoModelForCausalLM

    from wordle_rl.backends.engine import CachedEngine
    from wordle_rl.backends.torch.causal_lm import CausalLM
    from wordle_rl.backends.torch.engine import TorchRows

    settings = settings_of(f"rollout={rollout}", f"model.max_context={context}")
    game, form = adapter._build(json.dumps(settings), tokenizer, TINY)
    lm, draws = CausalLM(AutoModelForCausalLM.from_pretrained(TINY).eval()), Draws(seed=3)
    sampling = Sampling(temperature=1.0, max_tokens=game.max_tokens)

    def engine() -> Any:
        stops = form.chat.tokenizer.stop_ids
        return CachedEngine(TorchRows(lm), stop_ids=stops, max_context=context)

    secrets = list(SPLITS.train[:2])
    player = ModelPlayer(engine=engine(), form=form, sampling=sampling, draws=draws)
    games = play(player, new_games(secrets, game.words, game.rules), answers=game.answers)
    for number, secret in enumerate(secrets):
        turn = iter(range(100))

        def answer(prompt: list[int], most: int, number=number, turn=turn) -> Any:
            uniforms = draws.uniforms([number], next(turn), most)
            brief = dataclasses.replace(sampling, max_tokens=most)
            [drawn] = engine().complete([prompt], brief, uniforms)
            return drawn.ids, drawn.logprobs

        output = run(Server(answer), settings, row_of(secret=secret))
        [talk] = player.talks[number]
        begin = talk.answers[0].start
        assert output.prompt_ids == talk.ids[:begin] and output.response_ids == talk.ids[begin:]
        assert output.response_mask == [int(t) for t in talk.trained[begin:]]
        assert output.response_logprobs == pytest.approx(talk.logprobs[begin:], abs=1e-4)
        assert output.reward_score == pytest.approx(game.score(games[number]).total)
        parts = output.extra_fields["reward_extra_info"]
        assert parts["acc"] == games[number].won and output.num_turns == 2 * len(talk.answers)
    lost_early = any(len(game.turns) < 6 and not game.won for game in games)
    assert lost_early is (context == 60 or rollout == "turn")


def test_the_server_gets_limits_stop_tokens_and_the_sampling_of_verl(run, tokenizer):
    server = says(tokenizer, *[guess("crane")] * 6)
    output = run(server, settings_of("sampling.max_tokens=9", "model.max_context=40"), row_of())
    asked = [request["max_tokens"] for request in server.requests]
    assert asked == [min(9, 40 - len(request["prompt"])) for request in server.requests]
    assert len(output.prompt_ids) + len(output.response_ids) <= 40
    assert len(asked) < 6 and asked[-1] < 9, "the game is lost where its context is full"
    assert output.extra_fields["reward_extra_info"]["acc"] == 0.0
    first = server.requests[0]
    assert first["stop_token_ids"] == [tokenizer.eos_token_id]
    assert (first["temperature"], first["top_p"]) == (1.0, 1.0)
    assert len({request["id"] for request in server.requests}) == 1, "one server keeps the prefix"
    # The oldest and the newest weights.
    fields = output.extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (1, len(asked))


def test_a_game_that_begins_in_the_middle_shows_its_earlier_guesses(run, tokenizer):
    server = says(tokenizer, *[guess("crane")] * 6)
    row = row_of(past_guesses=f"[['{OTHER}', '{marks(OTHER, SECRET)}']]")
    run(server, settings_of("history=upto4"), row)
    assert len(server.requests) == 5
    assert guess(OTHER) in tokenizer.decode(server.requests[0]["prompt"])


def test_long_answers_cost_what_the_algorithm_says(run, tokenizer):
    text = "crane " * 2 + guess(SECRET)
    most = len(tokenizer.encode(text, add_special_tokens=False)) + 1
    settings = settings_of("algorithm=dapo", f"sampling.max_tokens={most}")
    output = run(says(tokenizer, text), settings, row_of())
    parts = output.extra_fields["reward_extra_info"]
    assert parts["reward_overlong"] == pytest.approx(-1.0)
    shares = [value for name, value in parts.items() if name.startswith("reward_")]
    assert output.reward_score == pytest.approx(sum(shares))


WRONG = {
    f"{SECRET} is a train secret and must not be a val secret": row_of(split="val"),
    f"{VAL} is a val secret and must not be a train secret": row_of(secret=VAL),
    "a row of another split of the secrets": row_of(splits="0" * 64),
    "the feedback of crane .* must be": row_of(past_guesses="[['crane', '✓✓✓✓-']]"),
}


@pytest.mark.parametrize("said", WRONG)
def test_rows_that_break_a_rule_are_refused_whoever_wrote_them(said, run, tokenizer):
    with pytest.raises(ValueError, match=said) as refused:
        run(says(tokenizer, guess("crane")), settings_of(), WRONG[said])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ids", "logprobs", "said"),
    [
        ([5, 6], None, "rollout.calculate_log_probs must be true"),
        ([5] * 13, [-1.0] * 13, "must have 1 to 12 tokens"),
        ([5, 6], [-1.0], "a log-probability each, not 2 with 1"),
    ],
)
def test_answers_that_cannot_be_trained_on_are_refused(run, ids, logprobs, said):
    with pytest.raises(ValueError, match=said):
        run(Server(lambda prompt, most: (ids, logprobs)), settings_of(), row_of())


def test_a_node_with_other_word_lists_is_refused(run, tokenizer):
    settings = {**settings_of(), "splits": "0" * 64}
    with pytest.raises(ValueError, match="words must be the lists that the files were written"):
        run(says(tokenizer), settings, row_of())
