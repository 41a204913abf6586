"""Prompts as tokens: commands use the right ones, and the embedded tokenizer keeps them short."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.commands import evaluation
from tests.helpers.configs import composed
from tests.helpers.tiny import QWEN_TOOLS, qwen_like_tokenizer
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Game, State
from wordle_rl.prompts.styles import PHRASES, Letters, Symbols, WholeState
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form


def test_training_tells_the_rules_that_it_plays_by() -> None:
    given = ("rules=hard", "rules.max_turns=4", "model=micro", "algorithm=sft", "prompt=letters")
    setup = build_experiment(resolve(composed(*given)))
    told = ("in four guesses", "Hard mode")
    # Games of the policy and of a teacher, validation and the report take the style of the recipe.
    assert all(words in setup.recipe.style.system for words in told)
    for tools in (False, True):
        inner = qwen_like_tokenizer(QWEN_TOOLS) if tools else build_tokenizer()
        for name in ("tool",) if tools else ("conversation", "fresh"):
            form = build_form(name, Chat(HFTokenizer(inner)), setup.recipe.style)
            prompt = inner.decode(form.opening(State(max_turns=4)))
            assert all(prompt.count(words) == 1 for words in told)


def test_evaluation_tells_the_rules_that_it_plays_by(monkeypatch) -> None:
    monkeypatch.setattr(
        "wordle_rl.commands.eval_players.check_room",
        lambda form, *_, **__: pytest.fail(form.style.system),
    )
    with pytest.raises(pytest.fail.Exception, match=r"in four guesses\.\nHard mode"):
        evaluation("model=micro rules=hard rules.max_turns=4")()


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(HFTokenizer(build_tokenizer()))


def test_the_embedded_tokenizer_is_small_and_lossless_on_prompts(chat: Chat) -> None:
    tokenizer = chat.tokenizer
    assert len(tokenizer.inner) <= 256
    game = Game("crept", {"sleep", "eerie"})
    for guess in ("sleep", "eerie"):
        game.play(guess)
    for style in (Symbols(), Letters(), WholeState(), WholeState(think=True)):
        text = style.system + style.feedback(game.turns[-1], game.state)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_each_phrase_and_each_letter_of_a_guess_is_one_token(chat: Chat) -> None:
    assert all(len(chat.tokenizer.encode(phrase)) == 1 for phrase in PHRASES)
    assert len(chat.answer("<guess>crane</guess>")) == 5 + 2 + 1  # tags, end of turn


def test_a_symbols_turn_costs_fifteen_tokens(chat: Chat) -> None:
    ids = chat.reply("x-✓xx", last_id=chat.turn_end_id)
    assert len(ids) + len(chat.answer("<guess>crane</guess>")) == 15


def test_an_incremental_conversation_equals_the_whole_one_in_text(chat: Chat) -> None:
    style = Symbols()
    ids = chat.opening(style.system, style.opening(State()))
    ids += chat.answer("<guess>crane</guess>")
    ids += chat.reply("x-✓xx", last_id=chat.turn_end_id)
    messages = [
        {"role": "system", "content": style.system},
        {"role": "user", "content": style.opening(State())},
        {"role": "assistant", "content": "<guess>crane</guess>"},
        {"role": "user", "content": "x-✓xx"},
    ]
    tokenizer = chat.tokenizer.inner
    assert tokenizer.decode(np.array(ids)) == chat.tokenizer.render(messages)
