"""Special tokens inside an answer: they are no part of a guess, and logs show them."""

from typing import Any

import pytest
from tokenizers import AddedToken

from tests.helpers.tiny import QWEN_TOOLS, gemma_like_tokenizer, qwen_like_tokenizer
from wordle_rl.backends.hf_tokenizer import HFTokenizer
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.prompts.parser import ParseFailure, parse, parse_call
from wordle_rl.rollouts.chat import ToolChat

TOKENIZERS: dict[str, Any] = {
    "embedded": build_tokenizer,
    "byte-level BPE": qwen_like_tokenizer,
    "Gemma's": gemma_like_tokenizer,
}


def ids_of(tokenizer: HFTokenizer, text: str) -> list[int]:
    return [*tokenizer.encode(text), min(tokenizer.stop_ids)]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_no_special_token_is_skipped_inside_a_guess(name):  # row 35
    inner = TOKENIZERS[name]()
    tokenizer = HFTokenizer(inner)
    for special in inner.all_special_tokens:
        for text in (f"<guess>cra{special}ne</guess>", f"<guess>crane{special}</guess>",
                     f"<guess>{special}crane</guess>"):  # fmt: skip
            written = tokenizer.decode(ids_of(tokenizer, text))
            parsed = parse(written)
            assert (parsed.guess, parsed.reason) == (None, ParseFailure.NOT_ASCII_LETTERS)
            assert written == text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_token_that_ends_an_answer_is_no_part_of_its_text(name):
    tokenizer = HFTokenizer(TOKENIZERS[name](), extra_stop_ids=(7,))
    ids = tokenizer.encode("<guess>crane</guess>")
    for stop in tokenizer.stop_ids:
        # Short answers come from a cache, long ones do not; the second time tells them apart.
        for before in ([], tokenizer.encode("thinking aloud about vowels first ")) * 2:
            text = tokenizer.decode([*before, *ids, stop])
            assert parse(text).guess == "crane" and text.endswith("</guess>")
    [end] = tokenizer.stop_ids - {7}
    # Only the last one ended the answer.
    name_of_end = tokenizer.inner.convert_ids_to_tokens(end)
    assert tokenizer.decode([*ids, end, end]) == "<guess>crane</guess>" + name_of_end
    assert tokenizer.decode([end]) == tokenizer.decode([]) == ""


def test_an_id_that_is_no_token_is_no_part_of_a_guess_either():  # row 35
    # Qwen2.5 has 271 ids more than tokens: its sizes are rounded up for the GPU.
    tokenizer = HFTokenizer(qwen_like_tokenizer())
    before, behind = map(tokenizer.encode, ("<guess>cra", "ne</guess>"))
    written = tokenizer.decode([*before, len(tokenizer.inner) + 5, *behind])
    assert parse(written).reason is ParseFailure.NOT_ASCII_LETTERS
    assert written == "<guess>cra<|345|>ne</guess>"


@pytest.mark.parametrize("special", [False, True])
def test_tags_are_read_whatever_kind_of_token_they_are(special):
    inner = qwen_like_tokenizer(QWEN_TOOLS + "{# a tokenizer of its own #}" * (1 + special))
    tags = [AddedToken(f"<{end}{tag}>", special=special, normalized=False)
            for tag in ("think", "tool_call") for end in ("", "/")]  # fmt: skip
    inner.add_tokens(tags, special_tokens=special)
    tokenizer = HFTokenizer(inner)
    thought = "<think><guess>slate</guess></think>\n<guess>crane</guess>"
    assert parse(tokenizer.decode(ids_of(tokenizer, thought))).guess == "crane"
    call = ToolChat(tokenizer).call("crane")
    assert "<tool_call>" in call
    assert parse_call(tokenizer.decode(ids_of(tokenizer, call))).guess == "crane"
