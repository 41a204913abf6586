"""What the terminal shows around a run and an evaluation: cures, warnings, and games shown once."""

from __future__ import annotations

import os

import pytest

from tests.helpers.commands import command, evaluation
from wordle_rl.commands import eval_players as players
from wordle_rl.commands.eval import choose_games
from wordle_rl.commands.resume import describe_untaught_prompt
from wordle_rl.game.rules import Game
from wordle_rl.policy.settings import locate
from wordle_rl.prompts.styles import Places, Symbols
from wordle_rl.runs.paths import ROOT

pytestmark = pytest.mark.usefixtures("quiet")


def test_a_prompt_that_an_embedded_model_was_not_taught_is_warned_about():
    style = Places()
    assert describe_untaught_prompt(locate("embedded/lexicon"), style) is None
    told = describe_untaught_prompt(locate("embedded/tiny"), style)
    assert told is not None and told.startswith("warning: the model tiny was taught prompt=symbols")
    assert describe_untaught_prompt("Qwen/Qwen2.5-3B-Instruct", Symbols()) is None


def game(secret: str, *, won: bool) -> Game:
    played = Game(secret, {"crane", "slate", "sleep"})
    if won:
        played.play(secret)
    else:
        played.forfeit()
    return played


def test_boards_show_each_secret_once_and_half_of_them_lost():
    played = [("crane", True), ("crane", False), ("slate", False), ("slate", False)]
    games = [game(s, won=won) for s, won in (*played, ("sleep", True), ("sleep", True))]
    shown = choose_games(games, 4)
    assert [g.secret for g in shown] == ["crane", "slate", "sleep"]
    assert [g.won for g in shown] == [False, False, True]
    assert [g.secret for g in choose_games(games, 1)] == ["crane"]
    assert choose_games(games, 0) == []


def test_an_evaluation_that_is_stopped_says_so_in_one_line_and_leaves_no_folder(
    tmp_path, monkeypatch, capsys
):
    def stop(*_: object, **__: object) -> None:
        raise SystemExit(130)

    monkeypatch.setattr(players, "play", stop)
    with pytest.raises(SystemExit, match="130"):
        evaluation(f"player=random limit=5 output_dir={tmp_path}")()
    assert capsys.readouterr().err == "stopped before the last game, so nothing was written\n"
    assert not list(tmp_path.iterdir())


FIRST = """
import sys
from wordle_rl.commands import composed, train
train.load_backend = lambda _: sys.exit(int(bool({"torch", "lightning"} & set(sys.modules))))
composed.run_composed(composed.TRAIN)
"""


def test_the_first_lines_of_a_run_come_before_the_heavy_imports(tmp_path):
    _, alone = command("-X", "importtime", "-c", "import hydra.main")
    given = ["model=micro", f"output_dir={tmp_path}"]
    done, seconds = command("-c", FIRST, *given, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "")
    first, place, choices = done.stdout.splitlines()
    assert first.startswith("lineage: ") and place.startswith("run folder: ")
    assert choices.startswith("choices: ") and "model=micro" in choices
    assert seconds < 12 * alone
