"""The player that follows a decision tree: its file format, its games, and its errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wordle_rl.game.players.tree import TreePlayer
from wordle_rl.game.rules import Clue, Game, State
from wordle_rl.words.lists import load_words


def tree(tmp_path: Path, text: str) -> TreePlayer:
    path = tmp_path / "tree.txt"
    path.write_text(text, encoding="utf-8")
    return TreePlayer.from_file(path)


def test_tree_player_finds_every_secret_of_its_file_along_its_line(tmp_path):
    lines = ["salet abled badge", "salet abled", "salet", "salet courd brick", "salet,courd,mourn"]
    player = tree(tmp_path, "# comment\n\n" + "\n".join(lines) + "\n")
    assert player.answers == {"badge", "abled", "salet", "brick", "mourn"}
    words = load_words()
    games = [Game(secret, words.allowed_set) for secret in sorted(player.answers)]
    rows = [line.replace(",", " ").split() for line in lines]
    expected = {row[-1]: row for row in rows}
    for game in games:
        while game.status == "playing":
            (word,) = player.answer([game.state], np.array([0.5]))
            game.play(word)
        assert list(game.state.guesses) == expected[game.secret]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("salet crane\nsalet sloth\nsalet brick\nsalet mourn\n", r"rows 3 and 4 conflict: after"),
        ("salet crane\nraise brick\n", r"rows 1 and 2 conflict: for the empty board"),
        ("salet crane\nsalet crane\n", r"rows 1 and 2: both end with 'crane'"),
        ("salet cranes\n", r"row 1: 'cranes' is not five letters"),
        ("salet cr\u0430ne\n", r"row 1: .* is not five letters"),
        ("salet crane salet\n", r"row 1: a guess stands twice"),
        ("# nothing\n\n", r"no games in it"),
    ],
)
def test_faulty_tree_is_told_with_file_and_rows(tmp_path, text, told):
    with pytest.raises(ValueError, match=rf"tree\.txt:? ?{told}"):
        tree(tmp_path, text)


def test_missing_tree_file_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"nope\.txt: no such file"):
        TreePlayer.from_file(tmp_path / "nope.txt")


def test_tree_player_tells_when_it_is_asked_outside_its_tree(tmp_path):
    player = tree(tmp_path, "salet crane\n")
    with pytest.raises(ValueError, match="no guess after SALET xxxxx"):
        player.answer([State((Clue("salet", 0),), 1)], np.array([0.5]))
