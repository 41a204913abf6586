"""Templates that open a thought, or ask whether there is one: guesses stay outside of it."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.talks import turns_of
from tests.helpers.tiny import QWEN_TOOLS
from tests.rollouts.test_templates import a_game, tokenizer
from wordle_rl.game.rules import State
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import OPEN_THINK, ParseFailure, parse
from wordle_rl.prompts.styles import Symbols
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form
from wordle_rl.rollouts.teacher import scripted_talks

FOLDER = Path(__file__).parents[1] / "helpers" / "templates"
# Each with the beginning of an answer in its generation prompt, without thoughts and with them.
PROMPTS = {
    "qwen3": ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "<|im_start|>assistant\n"),
    "opens_thought": (
        "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<|im_start|>assistant\n<think>\n",
    ),
    "r1_distill": (None, "<|assistant|><think>\n"),
}
CASES = [
    (name, think)
    for name, prompts in PROMPTS.items()
    for think in (False, True)
    if prompts[think] is not None
]


def inner_of(name: str) -> Any:
    inner = copy.deepcopy(tokenizer("Llama 3" if name == "r1_distill" else "ChatML"))
    inner.eos_token = "<|eot_id|>" if name == "r1_distill" else "<|im_end|>"
    inner.chat_template = (FOLDER / f"{name}.jinja").read_text()
    return inner


def form_of(name: str, think: bool, form: str = "conversation") -> Form:
    return build_form(form, Chat(HFTokenizer(inner_of(name))), Symbols(think=think))


def decode(form: Form, ids: list[int]) -> str:
    return form.chat.tokenizer.inner.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("form", ["conversation", "fresh"])
@pytest.mark.parametrize(("name", "think"), CASES)
def test_a_prompt_is_the_templates_own(name, think, form):
    game_form = form_of(name, think, form)
    messages = [
        {"role": "system", "content": game_form.system},
        {"role": "user", "content": game_form.style.opening(State(max_turns=4))},
    ]
    expected = inner_of(name).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=think
    )
    text = decode(game_form, game_form.opening(State(max_turns=4)))
    assert text == expected and text.endswith(PROMPTS[name][think])


@pytest.mark.parametrize(("name", "think"), CASES)
def test_a_taught_guess_stands_outside_the_thought(name, think):
    form = form_of(name, think)
    chat, guess = form.chat, "<guess>crane</guess>"
    ids = chat.answer(guess)
    text = decode(form, [*chat.opening(None, "hello"), *ids])
    start = text.rindex("assistant")  # of the answer
    assert text[start:].count("<think>") == text[start:].count("</think>")
    assert parse(chat.read(ids)).guess == "crane"


@pytest.mark.parametrize(("name", "think"), CASES)
def test_earlier_guesses_read_as_they_were_played_and_have_no_open_thought(name, think):
    form, game, ids = form_of(name, think), a_game(), list[int]()
    for turn, tokens in zip(game.turns, turns_of(scripted_talks(game, form)), strict=True):
        ids += tokens.prompt_ids
        assert ids == form.opening(turn.state)
        assert parse(form.chat.read(tokens.ids)).guess == turn.guess
        ids += tokens.ids
    text = decode(form, ids)
    assert text.count("<think>") == text.count("</think>") + form.system.count("<think>") - (
        form.system.count("</think>")
    )


def test_an_answer_that_never_ends_the_prompts_thought_has_no_guess():
    chat = form_of("r1_distill", True).chat
    ids = chat.tokenizer.encode("so <guess>crane</guess>")
    assert chat.read(ids).startswith(OPEN_THINK)
    assert parse(chat.read(ids)).reason is ParseFailure.UNCLOSED_THINK


def test_a_thought_that_no_one_can_close_is_refused_where_none_is_wanted():
    with pytest.raises(ValueError, match=r"opens a thought \(<think>\).*prompt.think=true"):
        form_of("r1_distill", False)


@pytest.mark.parametrize("think", [False, True])
def test_calls_of_a_tool_are_found_behind_a_closed_thought(think):
    inner = copy.deepcopy(tokenizer("Qwen"))
    block = "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    inner.chat_template = QWEN_TOOLS.removesuffix("{% endif %}") + block + "{% endif %}"
    form = build_form("tool", Chat(HFTokenizer(inner)), Symbols(think=think))
    text = decode(form, form.opening(State(max_turns=4)))
    assert text.endswith("</think>\n\n") != think
    assert form.parse(form.chat.read(form.chat.answer(form.write("crane")))).guess == "crane"
