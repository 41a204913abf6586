"""Games as coloured boards."""

import re

import pytest

from tests.helpers import played_games
from wordle_rl.evaluation.boards import (
    boards_side_by_side,
    paired_boards,
    tabulate_games,
)
from wordle_rl.game.rules import Game, Rules
from wordle_rl.rewards.scoring import GameReward

WORDS = frozenset({"crane", "sleep", "crept", "slate"})
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def played(secret, guesses, reason="no guess tag"):
    game = Game(secret, WORDS, Rules())
    for guess in guesses:
        game.play(guess, reason=None if guess else reason)
    return game


def test_tiles_are_green_yellow_and_grey_by_their_marks():
    row = boards_side_by_side([played("crept", ["sleep"])]).splitlines()[1]
    colours = re.findall(r"\x1b\[([0-9;]+)m ([A-Z]) \x1b\[0m", row)
    grey, green, yellow = "97;100", "30;42", "30;43"
    assert colours == [(grey, "S"), (grey, "L"), (green, "E"), (grey, "E"), (yellow, "P")]


def test_turns_without_feedback_say_why():
    board = boards_side_by_side([played("crept", [None, "zzzzz"] * 3)], colour=False)
    assert board.splitlines()[0] == "CREPT lost"
    assert "no guess tag" in board.splitlines()[1]
    assert board.splitlines()[2].startswith("ZZZZZ") and "not a word" in board


@pytest.mark.parametrize(("width", "colour"), [(40, True), (100, False)])
def test_boards_side_by_side_keep_the_width_and_lose_no_game(width, colour):
    games = [played("crept", ["sleep"] * n + ["crept"]) for n in range(5)] + [
        played("crane", [None, "slate"])
    ]
    text = ESCAPE.sub("", boards_side_by_side(games, width, colour=colour))
    assert max(map(len, text.splitlines())) <= width
    assert [len(re.findall(f"won in {n}", text)) for n in range(1, 6)] == [1] * 5
    assert text.count("unfinished") == 1


@pytest.mark.parametrize("colour", [True, False])
def test_pairs_of_boards_are_before_and_after_in_two_columns_of_one_width(colour):
    long = "a reason that is much too long for half of a terminal"
    pairs = [
        (played("crept", [None] * 6, reason=long), played("crept", ["sleep", "crept"])),
        (played("crane", ["zzzzz"]), played("crane", [None, "crane"], reason=long)),
    ]
    shown = paired_boards(pairs, ("before", "after step 3"), colour=colour)
    assert ("\x1b[30;42m" in shown) is colour
    lines = ESCAPE.sub("", shown).splitlines()
    assert max(map(len, lines)) <= 80
    right = lines[0].index("after step 3")
    assert lines[0].startswith("before ")
    assert (lines[2][:10], lines[2][right:]) == ("CREPT lost", "CREPT won in 2")
    assert lines[5][right:] == "" and "a reason" in lines[5]
    second = lines.index("", 3) + 1
    assert (lines[second][:16], lines[second][right:]) == ("CRANE unfinished", "CRANE won in 2")
    assert "not a word" in lines[second + 1][:right] and "a reason" in lines[second + 1][right:]


def reward_of(turns: int, **parts: float) -> GameReward:
    return GameReward(turns=(parts,) * turns)


def test_a_row_has_the_first_game_on_a_secret_with_its_reward_and_parts():
    games = [
        played_games.played("crane", [None, "zzzzz", "crept", "crane"]),
        played_games.played("crane", ["crane"]),
        played_games.given("sleep", ["slate"], ["abbey"] * 5),
    ]
    rewards = [reward_of(4, format=0.25), reward_of(1, format=9.0), reward_of(5, win=-0.5)]
    table = tabulate_games(games, rewards)
    assert [list(row.values()) for row in table] == [
        ["crane", True, 4, "????? zzzzz crept crane", "..... ..... ✓✓-xx ✓✓✓✓✓", 1.0, 1.0],
        ["sleep", False, 6, "(slate)" + " abbey" * 5, "(✓✓xx-)" + " xxx✓x" * 5, -2.5, -2.5],
    ]
    named = ["secret", "won", "turns", "guesses", "marks", "reward"]
    assert [list(row) for row in table] == [[*named, "format"], [*named, "win"]]
