"""What counts as an answer, as text and as a tool call, and how long hostile ones may take."""

import json
import time
from collections.abc import Callable

import pytest

from tests.helpers.tool_calls import call, guess
from wordle_rl.prompts.parser import ParseFailure, parse, parse_call, parse_spelled

TAG = "<guess>crane</guess>"


@pytest.mark.parametrize(
    "text",
    [
        TAG,
        "<guess>CRANE</guess>",
        "<guess>CrAnE</guess>",
        "<think>vowels first</think><guess>crane</guess>",
        "<think>\nvowels\n</think>\n\n \t\r\n<guess>crane</guess>\n",
        "<think></think>I say <guess>crane</guess>, of course",
        "<think>one</think><think>two</think>" + TAG,
        "<think>not <guess>slate</guess></think>" + TAG,
        "the prompt opened the think block</think>" + TAG,
        "<guess>slate</guess><think>no, better:</think>" + TAG,
        "</guess><think></think>" + TAG,
    ],
)
def test_one_guess_after_the_last_think_block_is_read_in_any_case(text):
    parsed = parse(text)
    assert (parsed.guess, parsed.reason) == ("crane", None)


FAILURES = {
    ParseFailure.EMPTY: ["", "\n\r\t "],
    ParseFailure.NO_GUESS_TAG: [
        "crane",
        "<think>crane</think>crane",
        "<GUESS>crane</GUESS>",
        "<guess >crane</guess >",
        "&lt;guess&gt;crane&lt;/guess&gt;",
        "\u00a0",
        "</guess ></think>crane",
    ],
    ParseFailure.UNCLOSED_GUESS: [
        "<guess>crane",
        "<guess>crane<guess>",
        "<guess>crane</guess",
        "<think>x</think><guess>",
    ],
    ParseFailure.UNOPENED_GUESS: ["crane</guess>", "</guess>crane<guess>", "</guess></guess>"],
    ParseFailure.GUESS_INSIDE_THINK: [f"<think>{TAG}</think>crane", f"{TAG}<think>done</think>"],
    ParseFailure.UNCLOSED_THINK: [
        f"<think>{TAG}",
        f"{TAG}<think>",
        f"<think></think>{TAG}<think>and then",
    ],
    ParseFailure.SEVERAL_GUESSES: [
        TAG + TAG,
        TAG + "<guess>slate</guess>",
        TAG + "</guess>",
        TAG + "<guess>",
    ],
    ParseFailure.NESTED_GUESSES: [
        "<guess><guess>crane</guess></guess>",
        "<guess>c<guess>r</guess>ane</guess>",
    ],
    ParseFailure.NOT_FIVE_LETTERS: [
        "<guess></guess>",
        "<guess>cran</guess>",
        "<guess>" + "a" * 5000 + "</guess>",
    ],
    ParseFailure.NOT_ASCII_LETTERS: [
        "<guess> \n</guess>",
        "<guess>cr ane</guess>",
        "<guess>cran3</guess>",
        "<guess>c r a n e</guess>",
        "<guess>crane\nslate</guess>",
        "<guess>C(x) R(-) A(✓) N(x) E(-)</guess>",
    ],
}


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in FAILURES.items() for text in texts]
)
def test_an_answer_without_exactly_one_guess_gets_the_reason_by_name(reason, text):
    parsed = parse(text)
    assert (parsed.guess, parsed.reason) == (None, reason)


LOOK_ALIKES = [  # Cyrillic, Greek, full width, bold, accents, ligatures, unseen characters, digits
    "cr\u0430ne",
    "cr\u03b1ne",
    "\uff43\uff52\uff41\uff4e\uff45",
    "crane\u0301",
    "cra\u0301n",
    "\U0001d41c\U0001d42b\U0001d41a\U0001d427\U0001d41e",
    "cr\u00e1ne",
    "brea\u212a",
    "\u017flate",
    "tr\u0131al",
    "TR\u0130AL",
    "\ufb01nal",
    "cra\u200bne",
    "crane\u200d",
    "cra\u00adne",
    "\ufeffcrane",
    "\u202ecrane",
    "crane\u00a0",
    "crane\u3000",
    "crane\u0085",
    "crane\u2028",
    "crane\x0c",
    "crane\x1c",
    "crane\x00",
    "cr4ne",
    "cran\u1d49",
    "cran\ud800",
]


# row 30
@pytest.mark.parametrize(
    "word",
    [f"crane{space}" for space in ("\n", "\r\n", " ", "\t", "\x0b")]
    + [" crane", "\ncrane"]
    + LOOK_ALIKES,
    ids=ascii,
)
def test_look_alike_letters_and_unseen_characters_are_rejected(word):
    parsed = parse(f"<guess>{word}</guess>")
    assert (parsed.guess, parsed.reason) == (None, ParseFailure.NOT_ASCII_LETTERS)


UNITS = [
    "<guess>",
    "</guess>",
    "<think>",
    "</think>",
    "<guess",
    "</guess",
    "<",
    "</",
    "<g",
    "<<guess>",
    " ",
    "\n",
    "\t",
    "\r\n",
    "a",
    "crane",
    "\u0430",
    "\u0301",
    "\u200b",
    "<guess>crane</guess>",
    "<guess> ",
    "<think></think>",
    "<think><guess>",
    "</think><guess>",
    "<guess></think>",
    "<think>a</think>",
    "g",
    ">",
    "<guess>crane",
    "crane</guess>",
]
PATTERNS = [
    *((unit, "", "") for unit in UNITS),
    *((unit, "<guess>", "</guess>") for unit in UNITS),
    *((unit, "<think>", "</think>" + TAG) for unit in ("<think>", " ", "</think", "<guess>")),
]


# row 29
def is_linear(read: Callable[[str], object], small: str, large: str) -> bool:
    """Whether large, which is 8 times as long as small, takes less than 24 times as long.

    Quadratic work would take 64 times. A busy machine disturbs one try, slow code fails all.
    """

    def seconds(text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            read(text)
            best = min(best, time.process_time() - start)
        return best

    return any(seconds(large) < 24 * seconds(small) for _ in range(4))


def test_time_is_linear_on_hostile_patterns():
    def is_slow(read, unit, prefix, suffix):
        # Sizes in characters.
        small, large = (prefix + unit * (n // len(unit)) + suffix for n in (80_000, 640_000))
        return not is_linear(read, small, large)

    assert len(PATTERNS) >= 60
    assert not [pattern for pattern in PATTERNS if is_slow(parse, *pattern)]
    calls = ["[", "{", '{"a":', "9", " ", '"', "<tool_call>", "</tool_call>"]
    assert not [u for u in calls if is_slow(parse_call, u, "<tool_call>", "</tool_call>")]


def test_a_spelled_guess_may_have_blanks_between_its_letters():
    for text in ("<guess> C R A N E</guess>", "<guess>c r a n e </guess>", TAG):
        assert parse_spelled(text).guess == "crane"
    assert parse("<guess> C R A N E</guess>").reason is ParseFailure.NOT_ASCII_LETTERS
    assert parse_spelled("<guess> C R A N</guess>").reason is ParseFailure.NOT_FIVE_LETTERS
    assert parse_spelled("<guess> C R-A N E</guess>").reason is ParseFailure.NOT_ASCII_LETTERS


CALL = call(guess("crane"))


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        call(guess("CRANE")),
        call(json.dumps(guess("crane"), indent=2)),
        call('{"arguments":{"word":"crane"},"name":"guess"}'),
        "<think>vowels first</think>\n" + CALL,
        f"<think>not {call(guess('slate'))}</think>{CALL}",
        "I call the tool. " + CALL,
    ],
)
def test_one_call_after_the_last_think_block_is_read(text: str) -> None:
    parsed = parse_call(text)
    assert (parsed.guess, parsed.reason) == ("crane", None)


BAD_CALLS = {
    ParseFailure.NO_GUESS_TAG: ["crane", TAG, json.dumps(guess("crane"))],
    ParseFailure.GUESS_INSIDE_THINK: [f"<think>{CALL}</think>"],
    ParseFailure.SEVERAL_GUESSES: [CALL + CALL, CALL + call(guess("slate"))],
    ParseFailure.NESTED_GUESSES: [call(call(guess("crane")))],
    ParseFailure.NOT_FIVE_LETTERS: [call(guess("")), call(guess("cranes"))],
    ParseFailure.NOT_ASCII_LETTERS: [
        call(guess("cr\u0430ne")),
        call('{"name":"guess","arguments":{"word":"cr\\u0430ne"}}'),
        call(guess("cra e")),
        call(guess("crane\n")),
        call(guess(" crane")),
        call(guess("ｃrane")),
    ],
    ParseFailure.MALFORMED_CALL: [
        call("crane"),
        call(""),
        call("[]"),
        call("null"),
        call("NaN"),
        call(guess(["crane"])),
        call(guess(5)),
        call(guess(None)),
        call(guess("crane", second="slate")),
        call({"name": "answer", "arguments": {"word": "crane"}}),
        call({"name": "guess"}),
        call({**guess("crane"), "id": 1}),
        call({"name": "guess", "arguments": "crane"}),
        call('{"name":"guess","arguments":{"word":"slate","word":"crane"}}'),
        call(json.dumps(guess("crane")) + "," + json.dumps(guess("crane"))),
        call(json.dumps(guess("crane"))[:-1]),
        call(json.dumps(guess("crane" + " " * 1000))),
        call("[" * 900),
        call("9" * 900),
    ],
}


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in BAD_CALLS.items() for text in texts]
)
def test_anything_else_has_a_named_reason(reason: ParseFailure, text: str) -> None:
    parsed = parse_call(text)
    assert (parsed.guess, parsed.reason) == (None, reason)
