"""Forms read as the tokenizer's own template writes them, wherever a game is taken over."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.talks import TurnTokens, turns_of
from tests.helpers.tiny import CHATML, QWEN_TOOLS, WORDS, gemma_like_tokenizer, qwen_like_tokenizer
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import TOOL
from wordle_rl.prompts.styles import Spelled, Symbols, WholeState
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form
from wordle_rl.rollouts.teacher import scripted_talks

TOKENIZERS: dict[str, Any] = {
    "conversation": qwen_like_tokenizer,
    "fresh": gemma_like_tokenizer,
    "tool": lambda: qwen_like_tokenizer(QWEN_TOOLS),
}
STYLES = [Symbols(), WholeState(think=True)]


def a_game(*guesses: str) -> Game:
    game = Game("sleep", WORDS.allowed_set, Rules(max_turns=4))
    for guess in guesses or ("slate", "zzzzz", "crane", "crept"):
        game.play(guess, text=guess_text(guess))
    return game


def form_and_game(name: str, style: Any) -> tuple[Form, Game, list[TurnTokens]]:
    chat = Chat(HFTokenizer(TOKENIZERS[name]()))
    game = a_game()
    form = build_form(name, chat, style)
    return form, game, turns_of(scripted_talks(game, form))


def ids_of(turns: Sequence[TurnTokens]) -> list[int]:
    return [i for turn in turns for i in (*turn.prompt_ids, *turn.ids)]


def test_shots_come_before_the_game_as_the_template_writes_finished_exchanges() -> None:
    inner = qwen_like_tokenizer()
    chat, style, game = Chat(HFTokenizer(inner)), Spelled(), a_game()
    shots = (replace(game.turns[0], guess="crane"), replace(game.turns[1], guess="slime"))
    form = build_form("conversation", chat, style, shots)
    messages = [
        ("system", style.system),
        ("user", style.opening(State())),
        ("assistant", "<guess> C R A N E</guess>"),
        ("user", style.opening(game.turns[1].state)),
        ("assistant", "<guess> S L I M E</guess>"),
        ("user", style.opening(State())),
    ]
    expected = inner.apply_chat_template(
        [{"role": role, "content": content} for role, content in messages],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=False,
    )
    assert form.opening(State()) == expected
    fresh_form = build_form("fresh", chat, style, shots)
    assert fresh_form.opening(State()) == expected
    reply = inner.decode(fresh_form.reply(game.turns[0], game.turns[1].state, last_id=0))
    assert reply.count("<guess> C R A N E</guess>") == 1
    assert reply.count(style.opening(game.turns[1].state)) == 2  # of a shot, and of the game


@pytest.mark.parametrize("style", STYLES)
def test_a_game_of_tool_calls_reads_as_the_template_writes_it_whole(style):
    form, game, turns = form_and_game("tool", style)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": style.rules + "HOW"},
        {"role": "user", "content": style.opening(State())},
    ]
    for turn, state in zip(
        game.turns, [*(t.state for t in game.turns[1:]), game.state], strict=True
    ):
        function = {"name": "guess", "arguments": {"word": turn.guess}}
        messages += [
            {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]},
            {"role": "tool", "content": style.feedback(turn, state)},
        ]
    inner = TOKENIZERS["tool"]()
    expected = inner.apply_chat_template(messages[:-1], tools=[TOOL], tokenize=False)
    text = inner.decode(ids_of(turns), skip_special_tokens=False) + "\n"
    before, hint, after = text.partition(
        "Think in <think>...</think>, then guess by calling the tool."
        if style.think
        else "Guess by calling the tool."
    )
    assert hint and before + "HOW" + after == expected
    assert "<guess>" not in text and "You are helpful" not in text
    for turn, tokens in zip(game.turns, turns, strict=True):
        assert form.parse(form.chat.tokenizer.decode(tokens.ids)).guess == turn.guess


def test_each_fresh_prompt_begins_anew_and_says_why_the_last_answer_was_refused():
    style = WholeState(think=True)
    form, game, turns = form_and_game("fresh", style)
    bos = TOKENIZERS["fresh"]().bos_token_id
    for number, (turn, tokens) in enumerate(zip(game.turns, turns, strict=True)):
        refusal = "That word is not in the word list.\n" if number == 2 else ""
        assert tokens.prompt_ids == form.chat.opening(
            style.system, refusal + style.opening(turn.state)
        )
        assert tokens.prompt_ids.count(bos) == 1 and tokens.fresh  # row 2


RAISES = "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (CHATML, "has tools"),
        (QWEN_TOOLS.replace("tool_call>", "call>"), "<tool_call>"),
        (RAISES + CHATML, "no tools here"),
    ],
)
def test_a_template_without_readable_tool_calls_is_refused_in_one_line(template, told):
    chat = Chat(HFTokenizer(qwen_like_tokenizer(template)))
    with pytest.raises(ValueError, match=f"rollout.form=tool needs .*{told}") as error:
        build_form("tool", chat, Symbols())
    assert len(str(error.value).splitlines()) == 1
