"""What counts as an answer, and how long hostile ones may take."""

from itertools import product

import pytest

from tests.helpers.linear import is_linear
from wordle_rl.prompts.parser import Parsed, ParseFailure, parse, parse_spelled

GOOD = "<guess>crane</guess>"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "<guess>CRANE</guess>",
        "<guess>CrAnE</guess>",
        "<think>vowels first</think><guess>crane</guess>",
        "<think>\nvowels\n</think>\n\n \t\r\n<guess>crane</guess>\n",
        "<think></think>I say <guess>crane</guess>, of course",
        "<think>one</think><think>two</think>" + GOOD,
        "<think>not <guess>slate</guess></think>" + GOOD,
        "the prompt opened the think block</think>" + GOOD,
        "<guess>slate</guess><think>no, better:</think>" + GOOD,
        "</guess><think></think>" + GOOD,
    ],
)
def test_one_guess_after_the_last_think_block_is_read_in_any_case(text):
    parsed = parse(text)
    assert (parsed.guess, parsed.reason) == ("crane", None)


FAILURES = {
    ParseFailure.EMPTY: ["", " ", "\n\r\t "],
    ParseFailure.NO_GUESS_TAG: [
        "crane",
        "<think>crane</think>",
        "<think>crane</think>crane",
        "<GUESS>crane</GUESS>",
        "<Guess>crane</Guess>",
        "<guess >crane</guess >",
        "< guess>crane< /guess>",
        "&lt;guess&gt;crane&lt;/guess&gt;",
        "\u00a0",
        "</guess ></think>crane",
    ],
    ParseFailure.UNCLOSED_GUESS: [
        "<guess>crane",
        "<guess>crane<guess>",
        "<guess>crane</guess",
        "<guess>crane</GUESS>",
        "<think>x</think><guess>",
    ],
    ParseFailure.UNOPENED_GUESS: ["crane</guess>", "</guess>crane<guess>", "</guess></guess>"],
    ParseFailure.GUESS_INSIDE_THINK: [
        f"<think>{GOOD}</think>",
        f"<think>{GOOD}</think>crane",
        f"{GOOD}<think>done</think>",
    ],
    ParseFailure.UNCLOSED_THINK: [
        f"<think>{GOOD}",
        f"{GOOD}<think>",
        f"<think></think>{GOOD}<think>and then",
        "<think>",
    ],
    ParseFailure.SEVERAL_GUESSES: [
        GOOD + GOOD,
        GOOD + "<guess>slate</guess>",
        GOOD + "</guess>",
        GOOD + "<guess>",
    ],
    ParseFailure.NESTED_GUESSES: [
        "<guess><guess>crane</guess></guess>",
        "<guess><guess>crane</guess>",
        "<guess>c<guess>r</guess>ane</guess>",
    ],
    ParseFailure.NOT_FIVE_LETTERS: [
        "<guess></guess>",
        "<guess>cran</guess>",
        "<guess>cranes</guess>",
        "<guess>" + "a" * 5000 + "</guess>",
    ],
    ParseFailure.NOT_ASCII_LETTERS: [
        "<guess> \n</guess>",
        "<guess>cr ane</guess>",
        "<guess>cran3</guess>",
        "<guess>crane.</guess>",
        "<guess>[crane]</guess>",
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


LOOK_ALIKES = {
    "Cyrillic a": "cr\u0430ne",
    "Cyrillic word": "\u0441\u0433\u0430\u043f\u0435",
    "Greek alpha": "cr\u03b1ne",
    "full width": "\uff43\uff52\uff41\uff4e\uff45",
    "mathematical bold": "\U0001d41c\U0001d42b\U0001d41a\U0001d427\U0001d41e",
    "combining acute": "crane\u0301",
    "combining in place of a letter": "cra\u0301n",
    "precomposed": "cr\u00e1ne",
    "Kelvin sign": "brea\u212a",  # its lower case is an ASCII k
    "long s": "\u017flate",  # its upper case is an ASCII S
    "dotless i": "tr\u0131al",
    "dotted capital I": "TR\u0130AL",
    "ligature": "\ufb01nal",
    "zero-width space": "cra\u200bne",
    "zero-width joiner": "crane\u200d",
    "soft hyphen": "cra\u00adne",
    "byte order mark": "\ufeffcrane",
    "right-to-left override": "\u202ecrane",
    "no-break space behind": "crane\u00a0",
    "ideographic space behind": "crane\u3000",
    "next line behind": "crane\u0085",
    "line separator behind": "crane\u2028",
    "form feed behind": "crane\x0c",
    "file separator behind": "crane\x1c",
    "null behind": "crane\x00",
    "digits": "cr4ne",
    "superscript": "cran\u1d49",
    "lone surrogate": "cran\ud800",
}


# row 30
@pytest.mark.parametrize("word", LOOK_ALIKES.values(), ids=LOOK_ALIKES.keys())
def test_look_alike_letters_and_unseen_characters_are_rejected(word):
    parsed = parse(f"<guess>{word}</guess>")
    assert (parsed.guess, parsed.reason) == (None, ParseFailure.NOT_ASCII_LETTERS)


# row 30
@pytest.mark.parametrize("space", ["\n", "\r\n", "\r", "\n\n", " ", "\t", "\x0b"])
def test_white_space_beside_the_word_is_rejected(space):
    for text in (f"crane{space}", f"{space}crane", f"{space}crane{space}", f"cran{space}"):
        parsed = parse(f"<guess>{text}</guess>")
        assert (parsed.guess, parsed.reason) == (None, ParseFailure.NOT_ASCII_LETTERS)
        parsed = parse(f"{space}<guess>crane</guess>{space}")
        assert parsed.guess == "crane"


def test_every_single_character_that_is_no_ascii_letter_is_rejected_inside_a_word():
    accepted = {
        chr(code)
        for code in range(0x3000)
        if parse(f"<guess>cr{chr(code)}ne</guess>").guess is not None
    }
    assert accepted == set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def test_a_truncated_answer_has_no_guess_whatever_it_says():
    parsed = parse(GOOD).truncated()
    assert (parsed.guess, parsed.reason) == (None, ParseFailure.TRUNCATED)
    assert (parsed.open_tags, parsed.close_tags) == (1, 1)
    assert Parsed.failed(ParseFailure.TRUNCATED).reason == "truncated"


def test_tags_are_counted_after_the_last_think_block_only():
    parsed = parse("<guess><think></think></guess><think></think><guess><guess></guess><think>")
    assert (parsed.open_tags, parsed.close_tags, parsed.closed_thinks) == (2, 1, 2)
    assert parsed.unclosed_think


def test_any_mix_of_tags_gives_either_a_guess_or_a_reason():
    pieces = ["<think>", "</think>", "<guess>", "</guess>", "crane", " "]
    guesses = 0
    for mix in product(pieces, repeat=5):
        parsed = parse("".join(mix))
        assert (parsed.guess is None) != (parsed.reason is None)
        assert parsed.guess in (None, "crane")
        guesses += parsed.guess is not None
    assert guesses > 20


UNITS = [
    "<guess>", "</guess>", "<think>", "</think>", "<guess", "</guess", "<", "</", "<g", "<<guess>",
    " ", "\n", "\t", "\r\n", "a", "crane", "\u0430", "\u0301", "\u200b", "<guess>crane</guess>",
    "<guess> ", "<think></think>", "<think><guess>", "</think><guess>", "<guess></think>",
    "<think>a</think>", "g", ">", "<guess>crane", "crane</guess>",
]  # fmt: skip
PATTERNS = [
    *((unit, "", "") for unit in UNITS),
    *((unit, "<guess>", "</guess>") for unit in UNITS),
    *((unit, "<think>", "</think>" + GOOD) for unit in ("<think>", " ", "</think", "<guess>")),
]


# row 29
def test_time_is_linear_on_sixty_hostile_patterns():
    assert len(PATTERNS) >= 60
    slow = []
    for unit, before, behind in PATTERNS:
        # Sizes in characters.
        small, large = (before + unit * (size // len(unit)) + behind for size in (500_000, 10**6))
        if not is_linear(parse, small, large):
            slow.append((unit, before))
    assert not slow


def test_a_spelled_guess_may_have_blanks_between_its_letters():
    for text in ("<guess> C R A N E</guess>", "<guess>c r a n e </guess>", GOOD):
        assert parse_spelled(text).guess == "crane"
    assert parse("<guess> C R A N E</guess>").reason is ParseFailure.NOT_ASCII_LETTERS
    assert parse_spelled("<guess> C R A N</guess>").reason is ParseFailure.NOT_FIVE_LETTERS
    assert parse_spelled("<guess> C R-A N E</guess>").reason is ParseFailure.NOT_ASCII_LETTERS
