"""What each reward gives, on examples worked out by hand."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from wordle_rl.game.feedback_table import build_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, Game, PlayedTurn, Rules, State, feedback_code
from wordle_rl.prompts.parser import parse
from wordle_rl.rewards.brevity import Brevity
from wordle_rl.rewards.clue_use import ClueUse
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.repeat import Repeat
from wordle_rl.rewards.value import Value
from wordle_rl.rewards.win import Win
from wordle_rl.rewards.words import Fits, Marks, NewWord
from wordle_rl.words.lists import WordLists

ANSWERS = ("batch", "catch", "crane", "crept", "hatch", "latch", "match", "patch", "sleep", "watch")
ALLOWED = (*ANSWERS, "blimp", "chimp", "lymph", "oomph")
WORDS = WordLists(answers=ANSWERS, allowed=tuple(sorted(ALLOWED)))
KNOWLEDGE = Knowledge(WORDS, build_table(WORDS))


def state_of(secret: str, *guesses: str, max_turns: int = 6) -> State:
    """The state after guesses, each of which cost a turn."""
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    return State(clues, len(clues), max_turns)


def play_text(text: str, state: State | None = None, secret: str = "crane", **rules) -> PlayedTurn:
    """The turn that an answer becomes."""
    state = state or State()
    game = Game(secret, WORDS.allowed_set, Rules(max_turns=state.max_turns, **rules), state=state)
    parsed = parse(text)
    return game.play(parsed.guess, text=text, reason=parsed.reason)


def turn_of(guess: str, secret: str = "crane", after: tuple[str, ...] = ()) -> PlayedTurn:
    return play_text(f"<guess>{guess}</guess>", state_of(secret, *after), secret, invalid="accept")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<guess>crane</guess>", 1.0),
        ("<think>so</think>\n<guess>CRANE</guess>", 1.0),
        ("<guess>zzzzz</guess>", 0.5),
        ("<guess>cran</guess>", 0.4),
        ("<guess></guess>", 0.4),
        ("<guess>cr\u0430ne</guess>", 0.4),
        ("<guess>crane</guess><guess>crane</guess>", 0.3),
        ("<guess><guess>crane</guess></guess>", 0.3),
        ("<think><guess>crane</guess></think>", 0.3),
        ("<guess>crane", 0.2),
        ("crane</guess>", 0.2),
        ("<think>crane</think>", 0.1),
        ("<think>crane", 0.1),
        ("crane", 0.0),
        ("<GUESS>crane</GUESS>", 0.0),
        (" \n", 0.0),
        ("", 0.0),
    ],
)
def test_the_form_of_an_answer_is_graded(text, expected):
    assert Format(words=WORDS)(play_text(text)) == expected
    turn = Game("crane", WORDS.allowed_set).play(None, text=text, reason="truncated")
    assert Format(words=WORDS)(turn) == min(expected, 0.4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>so</think>\n<guess>crane</guess>", 1.0),
        ("so</think><guess>crane</guess>", 1.0),  # the prompt opened the block
        ("<guess>crane</guess>", 0.75),
        ("<think> \n</think><guess>crane</guess>", 0.75),
        ("</think><guess>crane</guess>", 0.75),
        ("<guess>crane</guess><think>so</think>", 0.3),  # the guess is inside the thought
        ("<guess>zzzzz</guess>", 0.5),  # no less, because the laws need it
        ("<guess>cran</guess>", 0.4),
        ("<think>crane</think>", 0.1),
    ],
)
def test_where_thoughts_are_asked_for_a_guess_without_one_earns_less(text, expected):
    assert Format(words=WORDS, think=True)(play_text(text)) == expected


@pytest.mark.parametrize(
    ("secret", "after", "guess", "expected"),
    [
        ("crane", (), "slate", 5 * 0.05),
        ("crane", (), "eerie", 5 * 0.05),  # nothing is known yet of a second or third e
        # crane against crept is ✓✓xx-: c, r kept; e in a new place; p, t new
        ("crept", ("crane",), "crept", 0.2 + 0.2 + 0.1 + 0.05 + 0.05),
        ("crept", ("crane",), "crane", 0.2 + 0.2 - 0.5 - 0.5 - 0.2),
        # o new; c where r is confirmed; e in a new place; a, n absent
        ("crept", ("crane",), "ocean", 0.05 - 0.2 + 0.1 - 0.5 - 0.5),
        # e in a new place and where it was wrong; away from its place, r asks for a second r
        ("crept", ("crane",), "there", 0.05 + 0.05 + 0.1 + 0.05 - 0.2),
        ("crept", ("crane", "there"), "crept", 0.2 + 0.2 + 0.2 + 0.05 + 0.1),
        # sleep against crept is xx✓x-: exactly one e, in place 3; p is not in place 5
        ("crept", ("sleep",), "crepe", 0.05 + 0.05 + 0.2 + 0.1 - 0.5),
        ("crept", ("sleep",), "erect", -0.5 + 0.05 + 0.2 + 0.05 + 0.05),
        ("crept", ("sleep",), "eland", -0.2 - 0.5 + 0.05 + 0.05 + 0.05),  # its e is elsewhere
        ("crept", ("sleep",), "clasp", 0.05 - 0.5 + 0.05 - 0.5 - 0.2),
        # speed against abide is xx-x-: one e; neither in place 3 nor 4
        ("abide", ("speed",), "elegy", 0.1 + 0.05 - 0.5 + 0.05 + 0.05),
        ("abide", ("speed",), "creep", 0.05 + 0.05 - 0.2 - 0.5 - 0.5),
        # allow against llama is -✓-xx: two l for sure, one in its place, the other not in place 3
        ("llama", ("allow",), "llano", 0.1 + 0.2 + 0.1 + 0.05 - 0.5),
        ("llama", ("allow",), "hello", 0.05 + 0.05 - 0.2 + 0.1 - 0.5),
        # e seen once, in place: a second one was never asked for
        ("sleep", ("crest",), "eerie", 0.05 + 0.05 - 0.5 + 0.05 + 0.05),
        ("crane", ("fuzzy",), "fuzzy", 5 * -0.5),
        ("crane", ("crone",), "crane", 4 * 0.2 + 0.05),
    ],
)
def test_every_letter_is_scored_against_all_earlier_clues(secret, after, guess, expected):
    assert ClueUse()(turn_of(guess, secret, after)) == pytest.approx(expected, abs=1e-12)


def slow_entropy(guess: str, candidates: list[str]) -> float:
    counts = Counter(feedback_code(guess, secret) for secret in candidates)
    return -sum(n / len(candidates) * math.log2(n / len(candidates)) for n in counts.values())


@pytest.mark.parametrize(("candidates", "pool"), [("answers", ANSWERS), ("allowed", ALLOWED)])
@pytest.mark.parametrize("after", [(), ("catch",), ("catch", "blimp"), ("blimp", "match")])
def test_value_is_the_share_of_the_information_that_could_be_had(after, candidates, pool):
    state = state_of("match", *after)
    words = [w for w in pool if all(feedback_code(c.guess, w) == c.feedback for c in state.clues)]
    best = max(slow_entropy(guess, words) for guess in ALLOWED)
    for guess in ALLOWED:
        value = Value(knowledge=KNOWLEDGE, candidates=candidates)(turn_of(guess, "match", after))
        expected = slow_entropy(guess, words) / best if best else float(guess in words)
        assert value == pytest.approx(expected, abs=1e-9)


def test_a_guess_without_feedback_has_no_value():
    value = Value(knowledge=KNOWLEDGE)
    assert value(play_text("<guess>zzzzz</guess>")) == value(play_text("crane")) == 0.0
    assert value(play_text("<guess>blimp</guess>", state_of("crane", "crept"), hard_mode=True)) == 0


def test_only_a_guess_that_got_feedback_before_is_a_repeat():
    assert Repeat()(turn_of("catch", "match", ("blimp", "catch"))) == -1.0
    assert Repeat()(turn_of("patch", "match", ("blimp", "catch"))) == 0.0
    assert Repeat()(play_text("")) == 0.0


@pytest.mark.parametrize(
    ("used", "max_turns", "expected"),
    [(0, 6, 1.5), (1, 6, 1.4), (4, 6, 1.1), (5, 6, 1.0), (0, 1, 1.0), (0, 2, 1.5), (1, 2, 1.0)],
)
def test_each_turn_left_unused_by_a_win_is_worth_the_same(used, max_turns, expected):
    state = State((), used, max_turns)
    assert Win(speed=0.5)(play_text("<guess>crane</guess>", state)) == pytest.approx(expected)
    assert Win(speed=0.5)(play_text("<guess>crept</guess>", state)) == 0.0
    assert Win(speed=0.5)(play_text("crane", state)) == 0.0


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0), (10, 0), (12, -0.1), (20, -0.5), (30, -1), (10**6, -1)]
)
def test_tokens_beyond_the_free_ones_cost_up_to_one(tokens, expected):
    turn = replace(turn_of("crane"), tokens=tokens)
    assert Brevity(free=10, per=20)(turn) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("guess", "after", "word", "fits", "marks"),
    [
        ("crane", (), 1, 1, 1.0),  # the secret
        ("patch", (), 1, 1, 0.2),  # A and C are elsewhere
        ("patch", ("crept",), 1, 0, 0.2),  # the C is known to be first
        ("crept", ("crept",), 0, 0, 0.5),  # said before: no new word, and not the secret
        ("crxne", (), 0, 0, 0.0),  # no word, so it is not paid for fitting either
    ],
)
def test_words_clues_and_marks_are_paid_apart(guess, after, word, fits, marks):
    state = state_of("crane", *after)
    turn = play_text(f"<guess>{guess}</guess>", state)
    assert NewWord()(turn) == word
    assert Fits(knowledge=KNOWLEDGE)(turn) == fits
    assert Marks()(turn) == pytest.approx(marks)


def test_an_answer_without_a_guess_earns_none_of_them():
    turn = play_text("crane")
    assert (NewWord()(turn), Fits(knowledge=KNOWLEDGE)(turn), Marks()(turn)) == (0, 0, 0)
