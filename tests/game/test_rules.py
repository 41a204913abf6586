"""The rules: marks, hard mode, the price of bad answers, and how games end."""

import pytest

from wordle_rl.game.rules import (
    Clue,
    Game,
    GameStatus,
    Rules,
    State,
    TurnKind,
    feedback_code,
    marks,
)
from wordle_rl.game.rules import breaks_hard_mode as breaks

WORDS = frozenset(["crane", "slate", "abbey", "sleep", "crept", "speed", "trace"])


def clue(guess: str, secret: str) -> Clue:
    return Clue(guess, feedback_code(guess, secret))


def game(secret: str = "crept", **rules) -> Game:
    return Game(secret, WORDS, Rules(**rules))


@pytest.mark.parametrize(
    ("guess", "secret", "expected"),
    [  # worked out by hand
        ("sleep", "crept", "xx✓x-"),  # the E in place uses up the only E
        ("speed", "abide", "xx-x-"),  # one E to the left, D elsewhere
        ("speed", "erase", "-x--x"),  # both E elsewhere
        ("speed", "steal", "✓x✓xx"),
        ("eerie", "crept", "-x-xx"),  # only the first E of the guess
        ("allow", "llama", "-✓-xx"),
        ("crane", "crane", "✓✓✓✓✓"),
        ("geese", "elegy", "--✓xx"),  # one E in place, one elsewhere, the third absent
    ],
)
def test_marks_of_repeated_letters_follow_the_real_game(guess, secret, expected):
    assert marks(guess, secret) == expected


def test_game_is_won_by_the_secret_and_records_every_turn():
    match = game()
    first = match.play("slate", text="<guess>slate</guess>", tokens=7)
    last = match.play("crept")
    assert match.status is GameStatus.WON and match.won and last.won and not first.won
    assert match.state.turn == 2 and match.state.guesses == ("slate", "crept")
    assert [turn.state.turn for turn in match.turns] == [0, 1]
    assert (first.text, first.tokens) == ("<guess>slate</guess>", 7)
    with pytest.raises(ValueError, match="the game is over"):
        match.play("crane")


def test_game_is_lost_after_its_turns_and_won_by_the_last_one():
    loss, win = game(max_turns=2), game(max_turns=2)
    for match in (loss, win):
        match.play("slate")
    loss.play("crane")
    win.play("crept")
    assert (loss.status, win.status) == (GameStatus.LOST, GameStatus.WON)


@pytest.mark.parametrize(
    ("cost", "used", "status"),
    [
        ("lose_turn", 1, GameStatus.PLAYING),
        ("end_game", 1, GameStatus.LOST),
        ("retry", 0, GameStatus.PLAYING),
    ],
)
def test_a_non_word_and_an_unparsable_answer_cost_what_their_settings_say(cost, used, status):
    match = game(invalid=cost)
    turn = match.play("zzzzz")
    assert (turn.kind, turn.feedback) == (TurnKind.NOT_A_WORD, None)
    assert (match.state, match.status) == (State(turn=used), status)
    match = game(invalid="accept", unparsable=cost)
    turn = match.play(None, text="THINK", reason="no_guess_tag")
    assert (turn.kind, turn.reason) == (TurnKind.UNPARSABLE, "no_guess_tag")
    assert (match.state, match.status) == (State(turn=used), status)


def test_retries_are_counted_over_the_game_and_then_cost_turns():
    match = game(invalid="retry", unparsable="retry", max_retries=2, max_turns=3)
    for guess in ("zzzzz", None, "zzzzz", None):
        match.play(guess)
    assert (match.retries, match.state.turn, len(match.turns)) == (2, 2, 4)
    match.play("zzzzz")
    assert match.status is GameStatus.LOST


@pytest.mark.parametrize(
    ("guess", "after", "secret", "broken"),
    [
        ("crane", "slate", "crept", True),  # T was seen and is left out
        ("trace", "slate", "crept", False),  # T and E used, elsewhere is free
        ("sleep", "crane", "crept", True),  # C and R were in place
        ("crept", "crane", "crept", False),
        ("speed", "sleep", "crept", False),  # an absent letter may be used again
        ("slate", "slate", "crept", False),  # repeating a clue keeps it
        ("chest", "theme", "sleet", True),  # an E in place and another one seen: two are needed
        ("there", "theme", "sleet", False),
    ],
)
def test_hard_mode_binds_places_and_seen_letters(guess, after, secret, broken):
    assert breaks(guess, (clue(after, secret),)) is broken


def test_guess_that_breaks_hard_mode_costs_what_a_non_word_costs():
    easy_game, hard_game = game(), game(hard_mode=True)
    for match in (easy_game, hard_game):
        match.play("slate")
        match.play("crane")
    assert [turn.kind for turn in easy_game.turns] == [TurnKind.ACCEPTED] * 2
    assert hard_game.turns[1].kind is TurnKind.BREAKS_HARD_MODE
    assert (hard_game.state.turn, len(hard_game.state.clues)) == (2, 1)
