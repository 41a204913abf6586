"""The table of games by secret, as TensorBoard and Weights & Biases show it."""

import pytest

from tests.helpers.played_games import given, played
from wordle_rl.evaluation import game_table
from wordle_rl.evaluation.game_table import tabulate_games
from wordle_rl.rewards.scoring import GameReward


def reward_of(turns: int, **parts: float) -> GameReward:
    return GameReward(turns=(parts,) * turns)


def test_a_row_has_the_first_game_on_a_secret_with_its_reward_and_parts():
    games = [
        played("crane", [None, "zzzzz", "crept", "crane"]),
        played("crane", ["crane"]),
        given("sleep", ["slate"], ["abbey"] * 5),
    ]
    rewards = [reward_of(4, format=0.25), reward_of(1, format=9.0), reward_of(5, win=-0.5)]
    table = tabulate_games(games, rewards)
    assert table.columns == ["secret", "won", "turns", "guesses", "marks", "reward", "format",
                             "win"]  # fmt: skip
    assert table.rows == [
        ["crane", True, 4, "????? zzzzz crept crane", "..... ..... ✓✓-xx ✓✓✓✓✓", 1.0, 1.0, 0.0],
        ["sleep", False, 6, "(slate)" + " abbey" * 5, "(✓✓xx-)" + " xxx✓x" * 5, -2.5, 0.0, -2.5],
    ]
    last = table.markdown.splitlines()[-1]
    assert last.startswith("| sleep | no | 6 | (slate) abbey")
    assert last.endswith("| -2.50 | 0.00 | -2.50 |")
    assert len({line.count("|") for line in table.markdown.splitlines()}) == 1


def test_very_many_secrets_are_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(game_table, "_MOST_ROWS", 2)
    games = [played(secret, [secret]) for secret in ("crane", "sleep", "abbey")]
    table = tabulate_games(games, [reward_of(1, win=1.0)] * 3)
    assert [row[0] for row in table.rows] == ["crane", "sleep"]
