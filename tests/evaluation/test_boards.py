"""Games as coloured boards."""

import re

import pytest

from tests.helpers import played_games
from wordle_rl.evaluation.boards import (
    boards_side_by_side,
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


@pytest.mark.parametrize(("width", "colour"), [(40, True), (100, False)])
def test_boards_side_by_side_keep_the_width_and_lose_no_game(width, colour):
    games = [played("crept", ["sleep"] * n + ["crept"]) for n in range(5)] + [
        played("crane", [None, "slate"])
    ]
    text = ESCAPE.sub("", boards_side_by_side(games, width, colour=colour))
    assert max(map(len, text.splitlines())) <= width
    assert [len(re.findall(f"won in {n}", text)) for n in range(1, 6)] == [1] * 5
    assert text.count("unfinished") == 1


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
