"""A game's ids read as each manner of chat template writes the conversation, whoever answered."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.helpers.talks import turns_of
from tests.helpers.tiny import CHATML, GEMMA, QWEN_TOOLS, WORDS
from wordle_rl.game.players import guess_text
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.styles import Symbols, WholeState
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form
from wordle_rl.rollouts.teacher import scripted_talks

LLAMA = (
    "{% for m in messages %}{{ (bos_token if loop.first else '') + '<|start_header_id|>' + m.role"
    " + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
PHI = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
# The line break behind the role is not in the generation prompt.
ZEPHYR = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def mistral(
    blank: str = "", other: str = "{{ raise_exception('Only user and assistant!') }}"
) -> str:
    """blank: in front of each answer. other: what happens to other roles."""
    return (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' +"
        " m.content + ' [/INST]' }}{% elif m.role == 'assistant' %}{{ '" + blank + "' +"
        " m.content | trim + '</s>' }}{% else %}" + other + "{% endif %}{% endfor %}"
    )


# The system prompt wanders: it is always in front of the last message.
MISTRAL_LAST = (
    "{% if messages[0].role == 'system' %}{% set told = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set told = '' %}{% set rest = messages %}{% endif %}"
    "{{ bos_token }}{% for m in rest %}{% if m.role == 'user' %}{{ '[INST] ' + (told if loop.last"
    " else '') + m.content + '[/INST]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}"
    "{% endfor %}"
)
WITH_SYSTEM = {
    "ChatML": CHATML,
    "Qwen": QWEN_TOOLS,
    "Llama 3": LLAMA,
    "Phi": PHI,
    "Zephyr": ZEPHYR,
    "Gemma 3": GEMMA,
}
NO_SYSTEM = {
    "Gemma 2": "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}"
    "{% endif %}" + GEMMA,
    "Mistral": mistral(),
    "Mistral with a blank": mistral(" "),
    "Mistral that drops it": mistral(" ", other=""),
    "Mistral that moves it": MISTRAL_LAST,
    "ChatML that repeats it": CHATML.replace(
        "{{ m.content }}",
        "{{ m.content }}{% if m.role =="
        " 'user' and messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}",
    ),
}
TEMPLATES = WITH_SYSTEM | NO_SYSTEM
ENDS = {
    "Llama 3": "<|eot_id|>",
    "Phi": "<|end|>",
    "ChatML": "<|im_end|>",
    "Qwen": "<|im_end|>",
    "Gemma 2": "<end_of_turn>",
    "Gemma 3": "<end_of_turn>",
    "ChatML that repeats it": "<|im_end|>",
}


@cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """Single bytes and the special tokens of all templates."""
    special_tokens = [
        "<pad>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|end|>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<|user|>",
        "<|assistant|>",
        "<|system|>",
    ]
    tokens = [*special_tokens, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(special_tokens)
    inner = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token=ENDS.get(name, "</s>"),
        clean_up_tokenization_spaces=False,
    )
    inner.chat_template = TEMPLATES[name]
    return inner


def a_game() -> Game:
    game = Game("sleep", WORDS.allowed_set, Rules(max_turns=4))
    for guess in ("slate", "crane", "crept"):
        game.play(guess, text=guess_text(guess))
    return game


def first_messages(name: str, system: str, first: str) -> list[dict[str, Any]]:
    """How a conversation begins: with a system message, or all of it in the first one."""
    if name in WITH_SYSTEM:
        return [{"role": "system", "content": system}, {"role": "user", "content": first}]
    return [{"role": "user", "content": f"{system}\n\n{first}"}]


def write_prompt(name: str, messages: list[dict[str, Any]]) -> str:
    return tokenizer(name).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def text_of(name: str, ids: list[int]) -> str:
    return tokenizer(name).decode(ids, skip_special_tokens=False)


def openings(name: str, form: str) -> Iterator[tuple[str, str]]:
    """Prompts of a game that is taken over after 0 to 3 guesses, and the template's own."""
    chat = Chat(HFTokenizer(tokenizer(name)))
    game = a_game()
    for style in (Symbols(), WholeState()):
        game_form = build_form(form, chat, style)
        messages = first_messages(name, style.system, style.opening(State(max_turns=4)))
        for turn, next_state in zip(
            game.turns, [t.state for t in game.turns[1:]] + [game.state], strict=True
        ):
            if form == "fresh":
                messages = first_messages(name, style.system, style.opening(turn.state))
            yield text_of(name, game_form.opening(turn.state)), write_prompt(name, messages)
            messages.append({"role": "assistant", "content": turn.text})
            messages.append({"role": "user", "content": style.feedback(turn, next_state)})


@pytest.mark.parametrize("form", ["conversation", "fresh"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_reads_as_the_template_writes_it(name, form):
    for text, expected in openings(name, form):
        assert text == expected
        assert text.count("You are playing Wordle") == 1


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_game_that_was_played_reads_as_one_that_is_taken_over(name):
    chat = Chat(HFTokenizer(tokenizer(name)))
    game, style, ids = a_game(), Symbols(), list[int]()
    talks = scripted_talks(game, build_form("conversation", chat, style))
    for turn, tokens in zip(game.turns, turns_of(talks), strict=True):
        ids += tokens.prompt_ids
        assert ids == build_form("conversation", chat, style).opening(turn.state)
        assert chat.tokenizer.decode(tokens.ids).strip() == turn.text
        ids += tokens.ids


@pytest.mark.parametrize("now", ["true", "messages | length == 1", "messages[0].role == 'system'"])
def test_a_template_that_never_ends_is_refused_by_name(now, monkeypatch):
    monkeypatch.setattr("wordle_rl.policy.tokenizer._SECONDS", 0.05)
    inner = tokenizer.__wrapped__("Phi")  # the others are kept
    loops = "{% for a in range(9999) %}{% for b in range(3000) %}{% endfor %}{% endfor %}"
    inner.chat_template = f"{{% if {now} %}}{loops}{{% endif %}}" + inner.chat_template
    wrapper = HFTokenizer(inner)
    with pytest.raises(TimeoutError, match="chat template of the model takes more than 0"):
        Chat(wrapper).opening("be brief", "a")


ROLES = (
    "{% for m in messages %}{{ m.role }}:\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@pytest.mark.parametrize("template", [ZEPHYR, PHI.replace("<|end|>", "</s>"), ROLES, mistral(" ")])
def test_scripted_answers_are_the_tokens_of_the_whole_conversation(scheme, template):
    """As Llama 2, TinyLlama, Mistral and Phi-3, which put a blank before a text."""
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    blank = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence(blank)
    special_tokens = ["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    text = ["<guess>crane</guess> hello world", "assistant: so"] * 5  # no piece has a line break
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=[*special_tokens, *bytes_], show_progress=False
    )
    core.train_from_iterator(text, trainer)
    inner = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    inner.chat_template = template
    chat, answer = Chat(HFTokenizer(inner)), "<guess>crane</guess>"
    ids = [*chat.opening(None, "hello"), *chat.answer(answer)]
    ids += [*chat.reply("world", last_id=ids[-1]), *chat.answer(answer)]
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": answer}]
    messages += [{"role": "user", "content": "world"}, {"role": "assistant", "content": answer}]
    tokens = inner.apply_chat_template(messages, return_dict=False)
    assert ids == tokens[: len(ids)] and set(tokens[len(ids) :]) <= set(chat.reply("", last_id=0))
    # Behind a thought a guess has no blank of its own.
    thought_ids = [*inner("so").input_ids, *chat.answer(answer, begins=False)]
    assert inner.decode(thought_ids).strip() == f"so{answer}</s>"


@pytest.mark.parametrize("name", ["Llama 3", "Qwen"])
def test_a_template_that_asks_for_the_clock_is_told_one_date(name):
    inner = copy.deepcopy(tokenizer(name))
    inner.chat_template = (
        "{% if strftime_now is defined %}{{ strftime_now( '%d %b %Y') + strftime_now(\"%H:%M\") }}"
        "{% endif %}" + inner.chat_template
    )
    wrapper = HFTokenizer(inner)
    ids = Chat(wrapper).opening("Rules.", "Go.")
    assert "26 Jul 202400:00" in inner.decode(ids)
    assert any("asks for the date" in note and "2024-07-26" in note for note in wrapper.notes)
