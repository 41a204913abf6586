"""Prompts say what a player may know."""

import hashlib

import pytest

from wordle_rl.game.rules import Clue, Game, Rules, State, feedback_code
from wordle_rl.prompts.styles import Letters, Places, Spelled, Symbols, WholeState
from wordle_rl.words.splits import WordSettings

WORDS = {"crane", "sleep", "speed", "crept", "eerie"}


def play(secret: str, *guesses: str) -> Game:
    game = Game(secret, WORDS)
    for guess in guesses:
        game.play(guess)
    return game


@pytest.mark.parametrize(
    ("style", "told"),
    [
        (Symbols(), "xx✓x-"),
        (Letters(), "SLEEP -> S(x) L(x) E(✓) E(x) P(-)"),
        (Places(), "s1x l2x e3✓ e4x p5-"),
    ],
)
def test_each_letter_gets_its_mark(style, told) -> None:  # row 34: the last guess is told
    game = play("crept", "crane", "sleep")
    assert style.feedback(game.turns[-1], game.state) == told
    opening = style.opening(game.state)
    assert told in opening and opening.endswith("Make your next guess.")


def test_the_state_names_places_misplaced_letters_how_often_and_absent_letters() -> None:
    game = play("crept", "sleep")
    assert WholeState().feedback(game.turns[-1], game.state).splitlines() == [
        "Known places: 3 e",
        "In the word, not at the places given: e 4, p 5",
        "How often in the word: e exactly once",
        "Not in the word: l, s",
        "Guesses so far: sleep",
        "Make your next guess.",
    ]


def test_the_spelled_state_has_its_letters_apart_and_says_all_of_it() -> None:
    game = play("crept", "sleep", "crane")
    assert Spelled().feedback(game.turns[-1], game.state).splitlines() == [
        "Not: A L N S",
        "Has: E45 P5",
        "Count: E exactly once",
        "Word: C R E _ _",
    ]
    assert Spelled().opening(State()) == "Word: _ _ _ _ _"


def opening(secret: str, *guesses: str) -> list[str]:
    clues = tuple(Clue(guess, feedback_code(guess, secret)) for guess in guesses)
    return WholeState().opening(State(clues, len(clues))).splitlines()


DIGESTS = {  # of the texts that the embedded models were taught with, and runs so far
    Symbols(): "907d31eeada9ec0f",
    Letters(): "907d31eeada9ec0f",
    WholeState(): "f912b8aa563976c6",
    WholeState(think=True): "bb6f8665a1a0b855",
}


@pytest.mark.parametrize("style", DIGESTS)
def test_six_guesses_without_hard_mode_are_told_as_they_always_were(style) -> None:
    assert hashlib.sha256(style.system.encode()).hexdigest()[:16] == DIGESTS[style]
    assert "word in six guesses.\n" in style.system and "ard mode" not in style.system


@pytest.mark.parametrize("think", [False, True])
@pytest.mark.parametrize("kind", [Symbols, WholeState, Spelled])
def test_answers_that_a_prompt_shows_can_be_read_and_hold_no_secret_out_of_training(
    kind, think
) -> None:
    style = kind(wording="shown", think=think)
    words = [style.parse(line).guess for line in style.system.splitlines()[-3:]]
    _, splits = WordSettings().load()
    assert len({*words} & {*splits.train}) == 3, words
    assert style.opening(State()).splitlines()[-1][-6:-1] == "guess"  # it asks for an answer
    assert all(style.write(word) not in kind(think=think).system for word in words)


@pytest.mark.parametrize(("turns", "told"), [(1, "one"), (12, "twelve"), (13, "13")])
def test_the_number_of_guesses_and_hard_mode_are_those_of_the_rules(turns, told) -> None:
    text = WholeState(game=Rules(max_turns=turns, hard_mode=True)).system
    assert text.startswith(
        f"You are playing Wordle: find the secret five-letter English word in {told} guess"
    )
    assert "\nHard mode: a guess must use every clue.\n" in text and "six" not in text
