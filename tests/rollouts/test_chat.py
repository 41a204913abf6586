"""Conversations hold the very ids that were sampled, between what the chat template writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.helpers.backends import Backend
from tests.helpers.characters import CharacterTokenizer
from tests.helpers.engine_spy import Spy
from tests.helpers.talks import turns_of
from tests.helpers.tiny import (
    WORDS,
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
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.game.players import Player
from wordle_rl.game.rules import PlayedTurn, Rules
from wordle_rl.policy.batch import Batch
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.prompts.styles import PHRASES, Letters, Symbols, WholeState
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.teacher import ScriptedPlayer, scripted_talks
from wordle_rl.training.step import collect_rollouts, train_step

TOKENIZERS = {
    "qwen": qwen_like_tokenizer,
    "gemma": gemma_like_tokenizer,
    "embedded": build_tokenizer,
}


@dataclass
class Played:
    spy: Spy
    batch: Batch
    turns: int
    answers: list[list[int]]


def play_a_step(policy: Any, monkeypatch: pytest.MonkeyPatch, **recipe: Any) -> Played:
    """One training step of real games, with what went through the engine and what was trained."""
    spy = Spy(policy.engine())
    batches: list[Batch] = []
    real = policy.update

    def update(batch: Batch, algorithm: Any) -> dict[str, float]:
        batches.append(batch)
        return real(batch, algorithm)

    monkeypatch.setattr(policy, "engine", lambda: spy)
    monkeypatch.setattr(policy, "update", update)
    policy.keep_reference()
    setup = recipe_of(Grpo(), lambda turn: turn.tokens / 10, **recipe)
    result = train_step(step_of(policy, setup, 0))
    answers = [t.ids for r in result.rollouts for t in turns_of(r.talks)]
    turns = max(len(r.answer_lengths) for r in result.rollouts)
    return Played(spy, batches[0], turns, answers)


@pytest.fixture(params=["qwen", "gemma"])
def played(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> tuple[Any, Played]:
    """A plain copy of the model, and a step that it played."""
    tokenizer = AlwaysGuesses(TOKENIZERS[request.param](), extra_stop_ids=many_stops(340))
    model = (qwen if request.param == "qwen" else gemma)(340)
    plain = plain_copy(model)
    # A small context and winning words end games early: rows leave, the rest is ragged.
    policy = backend.policy_of(model, tokenizer, temperature=0.8, max_context=210, lr=0.0)
    sampling = Sampling(temperature=0.8, max_tokens=8)
    rules = Rules(max_turns=4)
    return plain, play_a_step(
        policy, monkeypatch, sampling=sampling, rules=rules, groups=3, num_generations=4
    )


def test_trained_ids_are_the_sampled_ids_of_every_turn(played):  # row 1
    _, step = played
    seen = sorted(step.spy.conversations)
    batch = step.batch
    trained = sorted(
        (ids[:end].tolist(), marks[:end].tolist())
        for ids, marks, end in zip(batch.ids, batch.trained, batch.lengths.tolist(), strict=True)
    )
    # A message that no longer fitted was fed to no row and must not be trained on either.
    assert trained == seen
    assert step.turns > 1 and len({len(ids) for ids, _ in seen}) > 2


def test_the_tokenizers_of_these_tests_would_show_a_re_encoding(played):  # row 1
    _, step = played
    inner = qwen_like_tokenizer()
    changed = sum(
        inner.encode(inner.decode(ids), add_special_tokens=False) != ids for ids in step.answers
    )
    assert changed > len(step.answers) / 3


def test_training_sees_the_logprobs_that_were_seen_while_decoding(played):  # row 2
    plain, step = played
    batch = step.batch
    for row, end in enumerate(batch.lengths.tolist()):
        whole = full_logprobs(plain, batch.ids[row, :end].tolist(), temperature=0.8)
        marks = batch.trained[row, :end]
        assert np.abs(whole[marks] - batch.sampler_logprobs[row, :end][marks]).max() < 1e-4


def test_a_conversation_has_one_bos_even_when_template_and_tokenizer_both_write_it(
    monkeypatch, backend
):
    # row 2
    inner = gemma_like_tokenizer()
    assert inner.encode("x")[0] == inner.bos_token_id, "the tokenizer must add one by itself"
    policy = backend.policy_of(gemma(340), AlwaysGuesses(inner, extra_stop_ids=many_stops(340)))
    step = play_a_step(policy, monkeypatch)
    prompts_only = np.where(step.batch.trained, -1, step.batch.ids)
    assert (prompts_only == inner.bos_token_id).sum(axis=1).tolist() == [1] * len(prompts_only)
    assert set(step.batch.ids[:, 0].tolist()) == {inner.bos_token_id}


class Fixed(Player):
    """A scripted player that says the same words in the same order."""

    name = "fixed"

    def choose(self, state: Any, uniform: float = 0.0) -> str:
        return ("slate", "crept", "crane")[state.turn % 3]


def as_the_template_writes(inner: Any, style: Any, turns: list[PlayedTurn], states: Any) -> str:
    messages = [
        {"role": "system", "content": style.system},
        {"role": "user", "content": style.opening(turns[0].state)},
    ]
    for turn, state in zip(turns, states, strict=True):
        messages.append({"role": "assistant", "content": turn.text})
        messages.append({"role": "user", "content": style.feedback(turn, state)})
    return inner.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=False)


@pytest.mark.parametrize("style", [Symbols(), Letters(), WholeState(think=True)])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_conversation_reads_as_the_template_would_write_it_whole(name, style):
    inner = TOKENIZERS[name]()
    chat = Chat(HFTokenizer(inner))
    [game] = play(
        ScriptedPlayer(player=Fixed(), draws=Draws(seed=0)),
        new_games(["sleep"], WORDS, Rules(max_turns=3)),
    )
    [talk] = scripted_talks(game, build_form("conversation", chat, style))
    text = inner.decode(talk.ids, skip_special_tokens=False)
    states = [*(turn.state for turn in game.turns[1:]), game.state]
    assert text + "\n" == as_the_template_writes(inner, style, game.turns, states)
    assert "You are helpful" not in text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_end_of_turn_is_fed_once_whether_or_not_the_policy_drew_it(name):
    chat = Chat(HFTokenizer(TOKENIZERS[name]()))
    drawn = chat.reply("xx-✓x", last_id=chat.turn_end_id)
    cut_off = chat.reply("xx-✓x", last_id=chat.turn_end_id + 5)
    assert cut_off == [chat.turn_end_id, *drawn]
    assert drawn[0] != chat.turn_end_id
    # The second call comes from a cache, which must not have been changed by the first.
    assert chat.reply("xx-✓x", last_id=chat.turn_end_id) == drawn


def test_a_scripted_answer_ends_with_the_token_that_ends_a_drawn_one():
    chat = Chat(HFTokenizer(qwen_like_tokenizer()))
    ids = chat.answer("<guess>crane</guess>")
    assert ids[-1] == qwen_like_tokenizer().eos_token_id
    assert chat.tokenizer.decode(ids) == "<guess>crane</guess>"


def test_a_template_that_drops_or_repeats_messages_is_refused():
    last_only = CharacterTokenizer(lambda messages: f"[{messages[-1]['content']}]")
    twice = CharacterTokenizer(lambda messages: 2 * "".join(f"[{m['content']}]" for m in messages))
    for tokenizer in (last_only, twice):
        with pytest.raises(ValueError, match="each message once"):
            Chat(tokenizer)


def test_a_template_that_ends_answers_with_no_stop_token_is_refused():
    def render(messages: Any) -> str:
        return "".join(f"[{m['content']}]" for m in messages)

    assert Chat(CharacterTokenizer(render)).turn_end_id == ord("]")
    with pytest.raises(ValueError, match="stop ids"):
        Chat(CharacterTokenizer(render, stop="."))


def test_a_tokenizer_without_an_end_is_refused():
    inner = build_tokenizer()
    inner.eos_token = None
    with pytest.raises(ValueError, match="eos_token"):
        HFTokenizer(inner)
    inner.chat_template = None
    with pytest.raises(ValueError, match="neither a chat template nor an eos_token"):
        HFTokenizer(inner, extra_stop_ids=(1,))


def test_a_base_model_gets_a_plain_template_and_says_so():
    inner = build_tokenizer()
    assert HFTokenizer(inner).notes == ()
    inner.chat_template = None
    tokenizer = HFTokenizer(inner)
    [note] = tokenizer.notes
    assert note.startswith("the model has no chat template") and note.endswith("<|im_end|>")
    chat = Chat(tokenizer)
    opening = chat.opening("Rules.", "Go.")
    assert inner.decode(opening) == "System:\nRules.\n\nUser:\nGo.\n\nAssistant:\n"
    answer = chat.answer("crane")
    assert tokenizer.decode(answer) == "crane" and answer[-1] == inner.eos_token_id
    reply = chat.reply("No.", last_id=answer[-1])
    assert inner.decode(reply) == "\n\nUser:\nNo.\n\nAssistant:\n"


def test_the_pad_token_is_a_stop_token_when_the_tokenizer_has_none_of_its_own():
    tokenizer = HFTokenizer(gemma_like_tokenizer())
    assert gemma_like_tokenizer().pad_token_id is None
    assert {tokenizer.pad_id} == tokenizer.stop_ids


def test_each_phrase_of_the_prompts_is_one_token_of_the_embedded_tokenizer():
    tokenizer = HFTokenizer(build_tokenizer())
    assert len(tokenizer.inner) <= 256
    for phrase in PHRASES:
        ids = tokenizer.encode(phrase)
        assert len(ids) == 1 and tokenizer.decode(ids) == phrase


def test_an_answer_that_hit_its_limit_is_no_guess_whatever_it_says(backend):  # row 18
    policy = backend.policy_of(qwen(340), AlwaysGuesses(qwen_like_tokenizer()))
    recipe = recipe_of(Grpo(), lambda turn: 0.0)
    played = collect_rollouts(step_of(policy, recipe, 0), range(recipe.rollout.groups))
    cut_off_wins = 0
    for rollout in played:
        for turn, tokens in zip(rollout.game.turns, turns_of(rollout.talks), strict=True):
            if tokens.ids[-1] not in policy.tokenizer.stop_ids:
                assert turn.guess is None and turn.reason == "truncated" and not turn.won
                cut_off_wins += rollout.game.secret in turn.text
    assert cut_off_wins > 0, "an answer that was cut off must name the secret"
