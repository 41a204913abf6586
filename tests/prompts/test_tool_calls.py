"""Which answers call the tool, and that hostile ones cost no time."""

from __future__ import annotations

import json

import pytest

from tests.helpers.linear import is_linear
from tests.helpers.tool_calls import call, guess
from wordle_rl.prompts.parser import ParseFailure, parse_call
from wordle_rl.rewards.format import Format
from wordle_rl.words.lists import WordLists

GOOD = call(guess("crane"))


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        call(guess("CRANE")),
        call(json.dumps(guess("crane"), indent=2)),
        call('{"arguments":{"word":"crane"},"name":"guess"}'),
        "<think>vowels first</think>\n" + GOOD,
        f"<think>not {call(guess('slate'))}</think>{GOOD}",
        "I call the tool. " + GOOD,
    ],
)
def test_one_call_after_the_last_think_block_is_read(text: str) -> None:
    parsed = parse_call(text)
    assert (parsed.guess, parsed.reason) == ("crane", None)


FAILURES = {
    ParseFailure.EMPTY: ["", " \n"],
    ParseFailure.NO_GUESS_TAG: ["crane", "<guess>crane</guess>", json.dumps(guess("crane"))],
    ParseFailure.UNCLOSED_GUESS: ["<tool_call>" + json.dumps(guess("crane"))],
    ParseFailure.UNOPENED_GUESS: [json.dumps(guess("crane")) + "</tool_call>"],
    ParseFailure.GUESS_INSIDE_THINK: [f"<think>{GOOD}</think>"],
    ParseFailure.UNCLOSED_THINK: ["<think>" + GOOD],
    ParseFailure.SEVERAL_GUESSES: [GOOD + GOOD, GOOD + call(guess("slate"))],
    ParseFailure.NESTED_GUESSES: [call(call(guess("crane")))],
    ParseFailure.NOT_FIVE_LETTERS: [call(guess("")), call(guess("cranes"))],
    ParseFailure.NOT_ASCII_LETTERS: [
        call(guess("cr\u0430ne")), call('{"name":"guess","arguments":{"word":"cr\\u0430ne"}}'),
        call(guess("cra e")), call(guess("crane\n")), call(guess(" crane")), call(guess("ｃrane")),
    ],
    ParseFailure.MALFORMED_CALL: [
        call("crane"), call(""), call("[]"), call("null"), call("NaN"), call(guess(["crane"])),
        call(guess(5)), call(guess(None)), call(guess("crane", second="slate")),
        call({"name": "answer", "arguments": {"word": "crane"}}), call({"name": "guess"}),
        call({**guess("crane"), "id": 1}), call({"name": "guess", "arguments": "crane"}),
        call('{"name":"guess","arguments":{"word":"slate","word":"crane"}}'),
        call(json.dumps(guess("crane")) + "," + json.dumps(guess("crane"))),
        call(json.dumps(guess("crane"))[:-1]), call(json.dumps(guess("crane" + " " * 1000))),
        call("[" * 900), call("9" * 900),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in FAILURES.items() for text in texts]
)
def test_anything_else_has_a_named_reason(reason: ParseFailure, text: str) -> None:
    parsed = parse_call(text)
    assert (parsed.guess, parsed.reason) == (None, reason)


@pytest.mark.parametrize("unit", ["[", "{", '{"a":', "9", " ", '"', "<tool_call>", "</tool_call>"])
def test_time_is_linear_whatever_is_repeated(unit: str) -> None:  # row 29
    small, large = (
        f"<tool_call>{unit * (size // len(unit))}</tool_call>" for size in (500_000, 10**6)
    )
    assert parse_call(large).guess is None
    assert is_linear(parse_call, small, large)


def test_format_grades_a_call_where_guesses_are_calls() -> None:
    from wordle_rl.game.rules import Game

    words = WordLists(answers=("crane", "slate"), allowed=("crane", "slate"))
    judged = {}
    for form in ("conversation", "tool"):
        for text in (call("crane"), "<guess>cranes</guess>"):
            turn = Game("crane", words.allowed_set).play(None, text=text)
            judged[form, text] = Format(words=words, form=form)(turn)
    assert list(judged.values()) == [0.0, 0.4, 0.4, 0.0]
