"""Conversations hold the very ids that were sampled, between what the chat template writes."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.helpers.backends import Backend
from tests.helpers.engine_spy import Spy
from tests.helpers.talks import turns_of
from tests.helpers.tiny import (
    AlwaysGuesses,
    full_logprobs,
    gemma,
    gemma_like_tokenizer,
    many_stops,
    plain_copy,
    qwen,
    qwen_like_tokenizer,
    recipe_of,
    step_of,
)
from wordle_rl.algorithms.grpo import Grpo
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import PHRASES, Letters, Symbols, WholeState
from wordle_rl.rollouts.chat import Chat
from wordle_rl.training.step import train_step

TOKENIZERS: dict[str, Callable[[], Any]] = {
    "qwen": qwen_like_tokenizer,
    "gemma": gemma_like_tokenizer,
    "embedded": build_tokenizer,
}


@dataclass
class Played:
    plain: Any  # a copy of the model
    spy: Spy
    batch: Batch
    answers: list[tuple[str | None, list[int]]]  # the guess that was read, and the tokens
    stops: frozenset[int]


@pytest.fixture(params=["qwen", "gemma"])
def played(request: pytest.FixtureRequest, backend: Backend) -> Played:
    """One training step of real games, with what went through the engine and what was trained."""
    tokenizer = AlwaysGuesses(TOKENIZERS[request.param](), extra_stop_ids=many_stops(340))
    model = (qwen if request.param == "qwen" else gemma)(340)
    plain = plain_copy(model)
    # A small context and winning words end games early: rows leave, the rest is ragged.
    policy = backend.policy_of(model, tokenizer, temperature=0.8, max_context=209, lr=0.0)
    spy, batches, policy_update = Spy(policy.engine()), [], policy.update

    def update(batch: Batch, algorithm: Any) -> dict[str, float]:
        batches.append(batch)
        return policy_update(batch, algorithm)

    policy.engine, policy.update = lambda: spy, update
    policy.keep_reference()
    recipe = recipe_of(
        Grpo(),
        lambda turn: turn.tokens / 10,
        sampling=Sampling(temperature=0.8, max_tokens=8),
        rules=Rules(max_turns=4),
        groups=3,
        num_generations=4,
    )
    result = train_step(step_of(policy, recipe, 0))
    assert max(len(r.answer_lengths) for r in result.rollouts) > 1
    answers = [
        (turn.guess, answer.ids)
        for rollout in result.rollouts
        for turn, answer in zip(rollout.game.turns, turns_of(rollout.talks), strict=True)
    ]
    return Played(plain, spy, batches[0], answers, tokenizer.stop_ids)


def test_what_was_sampled_is_trained_as_it_was_seen_while_decoding(played):  # rows 1 and 2
    batch, talks = played.batch, sorted(played.spy.conversations)
    rows = list(zip(batch.ids, batch.trained, batch.sampler_logprobs, batch.lengths, strict=True))
    sequences = sorted((ids[:end].tolist(), marks[:end].tolist()) for ids, marks, _, end in rows)
    # A message that no longer fitted was fed to no row and must not be trained on either.
    assert sequences == talks and len({len(ids) for ids, _ in talks}) > 2
    for ids, marks, logprobs, end in rows:
        expected = full_logprobs(played.plain, ids[:end].tolist(), temperature=0.8)
        assert np.abs(expected - logprobs[:end])[marks[:end]].max() < 1e-4
    inner = qwen_like_tokenizer()
    count = sum(
        inner.encode(inner.decode(ids), add_special_tokens=False) != ids
        for _, ids in played.answers
    )
    assert count > len(played.answers) / 3, "these tokenizers must show a re-encoding"
    # Row 18: what the limit of 8 tokens or the context cut off is no guess.
    cuts = [(guess, len(ids)) for guess, ids in played.answers if ids[-1] not in played.stops]
    assert {guess for guess, _ in cuts} == {None} and min(cuts)[1] < max(cuts)[1] == 8
    # Gemma's template and its tokenizer both write a BOS token.
    bos = gemma_like_tokenizer().bos_token_id
    if batch.ids[0, 0] == bos:
        padding = np.arange(batch.ids.shape[1]) >= batch.lengths[:, None]
        prompts = np.where(batch.trained | padding, -1, batch.ids)
        assert set((prompts == bos).sum(axis=1).tolist()) == {1}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_end_of_turn_is_fed_once_whether_or_not_the_policy_drew_it(name):
    chat = Chat(HFTokenizer(TOKENIZERS[name]()))
    reply = chat.reply("xx-✓x", last_id=chat.turn_end_id)
    assert reply[0] != chat.turn_end_id
    assert chat.reply("xx-✓x", last_id=chat.turn_end_id + 5) == [chat.turn_end_id, *reply]
    # The second call comes from a cache, which must not have been changed by the first.
    assert chat.reply("xx-✓x", last_id=chat.turn_end_id) == reply
    answer = chat.answer("<guess>crane</guess>")
    assert answer[-1] == chat.turn_end_id
    assert chat.tokenizer.decode(answer) == "<guess>crane</guess>"


def test_a_base_model_gets_a_plain_template_and_says_so():
    inner = build_tokenizer()
    assert HFTokenizer(inner).notes == ()
    inner.chat_template = None
    tokenizer = HFTokenizer(inner)
    [note] = tokenizer.notes
    assert note.startswith("the model has no chat template") and note.endswith("<|im_end|>")
    chat = Chat(tokenizer)
    opening, answer = chat.opening("Rules.", "Go."), chat.answer("crane")
    assert inner.decode(opening) == "System:\nRules.\n\nUser:\nGo.\n\nAssistant:\n"
    assert tokenizer.decode(answer) == "crane" and answer[-1] == inner.eos_token_id
    reply = chat.reply("No.", last_id=answer[-1])
    assert inner.decode(reply) == "\n\nUser:\nNo.\n\nAssistant:\n"
    bare_inner = build_tokenizer()
    bare_inner.eos_token = bare_inner.chat_template = None
    with pytest.raises(ValueError, match="neither a chat template nor an eos_token"):
        HFTokenizer(bare_inner, extra_stop_ids=(1,))


def test_a_base_model_with_the_chat_template_of_another_says_what_to_do():
    inner = copy.deepcopy(qwen_like_tokenizer())  # as Qwen2.5's base models
    end, inner.eos_token = inner.eos_token_id, "<|endoftext|>"
    with pytest.raises(ValueError, match=rf"with \[{end}\] .*im_end.*: .* add that id to eos_tok"):
        Chat(HFTokenizer(inner))
    assert Chat(HFTokenizer(inner, extra_stop_ids=(end,))).turn_end_id == end


def test_the_embedded_tokenizer_is_small_lossless_and_keeps_prompts_short():
    chat = Chat(HFTokenizer(build_tokenizer()))
    tokenizer, style = chat.tokenizer, Symbols()
    assert len(tokenizer.inner) <= 256
    assert all(len(tokenizer.encode(phrase)) == 1 for phrase in PHRASES)
    game = Game("crept", {"sleep", "eerie"})
    for guess in ("sleep", "eerie"):
        game.play(guess)
    for variant in (style, Letters(), WholeState(), WholeState(think=True)):
        text = variant.system + variant.feedback(game.turns[-1], game.state)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    answer = chat.answer("<guess>crane</guess>")
    reply = chat.reply("x-✓xx", last_id=chat.turn_end_id)
    assert (len(answer), len(reply)) == (8, 7)
    ids = [*chat.opening(style.system, style.opening(State())), *answer, *reply]
    messages = [
        {"role": "system", "content": style.system},
        {"role": "user", "content": style.opening(State())},
        {"role": "assistant", "content": "<guess>crane</guess>"},
        {"role": "user", "content": "x-✓xx"},
    ]
    assert tokenizer.inner.decode(ids) == tokenizer.render(messages)
