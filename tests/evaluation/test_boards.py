"""Games as coloured boards."""

import re

import pytest

from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.game.rules import Game, Rules

WORDS = frozenset({"crane", "sleep", "crept", "slate"})
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def play(secret, guesses, reason="no guess tag"):
    game = Game(secret, WORDS, Rules())
    for guess in guesses:
        game.play(guess, reason=None if guess else reason)
    return game


def test_tiles_are_green_yellow_and_grey_by_their_marks():
    row = boards_side_by_side([play("crept", ["sleep"])]).splitlines()[1]
    colours = re.findall(r"\x1b\[([0-9;]+)m (..)\x1b\[0m", row)
    grey, green, yellow = "97;100", "30;42", "30;43"
    assert colours == [(grey, "S "), (grey, "L "), (green, "E✓"), (grey, "E "), (yellow, "P-")]


@pytest.mark.parametrize(("width", "colour"), [(40, True), (100, False)])
def test_boards_side_by_side_keep_the_width_and_lose_no_game(width, colour):
    games = [play("crept", ["sleep"] * n + ["crept"]) for n in range(5)] + [
        play("crane", [None, "slate"])
    ]
    text = ESCAPE.sub("", boards_side_by_side(games, width, colour=colour))
    assert max(map(len, text.splitlines())) <= width
    assert [len(re.findall(f"won in {n}", text)) for n in range(1, 6)] == [1] * 5
    assert text.count("unfinished") == 1
