"""What the terminal shows around a run and an evaluation: cures, warnings, and games shown once."""

import pytest

from wordle_rl.commands.eval import choose_games
from wordle_rl.commands.resume import describe_untaught_prompt
from wordle_rl.game.rules import Game
from wordle_rl.policy.models import locate
from wordle_rl.prompts.styles import Places, Symbols

pytestmark = pytest.mark.usefixtures("quiet")


def test_a_prompt_that_an_embedded_model_was_not_taught_is_warned_about():
    style = Places()
    assert describe_untaught_prompt(locate("embedded/lexicon"), style) is None
    line = describe_untaught_prompt(locate("embedded/tiny"), style)
    assert line is not None and line.startswith("warning: the model tiny was taught prompt=symbols")
    assert describe_untaught_prompt("Qwen/Qwen2.5-3B-Instruct", Symbols()) is None


def game(secret: str, *, won: bool) -> Game:
    board = Game(secret, {"crane", "slate", "sleep"})
    if won:
        board.play(secret)
    else:
        board.forfeit()
    return board


def test_boards_show_each_secret_once_and_half_of_them_lost():
    pairs = [("crane", True), ("crane", False), ("slate", False), ("slate", False)]
    games = [game(s, won=won) for s, won in (*pairs, ("sleep", True), ("sleep", True))]
    choice = choose_games(games, 4)
    assert [(g.secret, g.won) for g in choice] == [
        ("slate", False),
        ("crane", True),
        ("sleep", True),
    ]
    assert [g.secret for g in choose_games(games, 1)] == ["crane"] and not choose_games(games, 0)
