"""Special tokens inside an answer: they are no part of a guess, and logs show them."""

import copy
from typing import Any

import pytest

from tests.helpers.tiny import gemma_like_tokenizer, qwen_like_tokenizer
from wordle_rl.backends.tiny_model import build_tokenizer
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.prompts.parser import ParseFailure, parse
from wordle_rl.rollouts.chat import Chat
from wordle_rl.runs.files import FolderError

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
        for text in (
            f"<guess>cra{special}ne</guess>",
            f"<guess>crane{special}</guess>",
            f"<guess>{special}crane</guess>",
        ):
            output = tokenizer.decode(ids_of(tokenizer, text))
            parsed = parse(output)
            assert (parsed.guess, parsed.reason) == (None, ParseFailure.NOT_ASCII_LETTERS)
            assert output == text


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_token_that_ends_an_answer_is_no_part_of_its_text(name):
    tokenizer = HFTokenizer(TOKENIZERS[name](), extra_stop_ids=(7,))
    ids = tokenizer.encode("<guess>crane</guess>")
    for stop in tokenizer.stop_ids:
        # Short answers come from a cache, long ones do not; the second time tells them apart.
        for prefix in ([], tokenizer.encode("thinking aloud about vowels first ")) * 2:
            text = tokenizer.decode([*prefix, *ids, stop])
            assert parse(text).guess == "crane" and text.endswith("</guess>")
    [end] = tokenizer.stop_ids - {7}
    # Only the last one ended the answer.
    name_of_end = tokenizer.inner.convert_ids_to_tokens(end)
    assert tokenizer.decode([*ids, end, end]) == "<guess>crane</guess>" + name_of_end
    assert tokenizer.decode([end]) == tokenizer.decode([]) == ""


def test_an_id_that_is_no_token_is_no_part_of_a_guess_either():  # row 35
    # Qwen2.5 has 271 ids more than tokens: its sizes are rounded up for the GPU.
    tokenizer = HFTokenizer(qwen_like_tokenizer())
    prefix, suffix = map(tokenizer.encode, ("<guess>cra", "ne</guess>"))
    text = tokenizer.decode([*prefix, len(tokenizer.inner) + 5, *suffix])
    assert parse(text).reason is ParseFailure.NOT_ASCII_LETTERS
    assert text == "<guess>cra<|345|>ne</guess>"


def test_a_prompt_needs_only_ids_that_the_model_has():
    inner = copy.deepcopy(qwen_like_tokenizer())
    rows = len(inner)
    inner.add_special_tokens({"pad_token": "[PAD]"})  # beyond the last row, as trainers add it
    tokenizer = HFTokenizer(inner, vocabulary=rows)
    assert inner.pad_token_id == rows and tokenizer.pad_id < rows
    Chat(tokenizer).opening("Rules.", "Go.")
    inner.chat_template = "[PAD]" + inner.chat_template
    with pytest.raises(FolderError, match=rf"writes \[PAD\] as id {rows}, .* has {rows} ids"):
        Chat(tokenizer).opening("Rules.", "Go.")
