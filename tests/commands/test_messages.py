"""What the terminal shows around a run and an evaluation: cures, warnings, and games shown once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.commands import command, evaluation, trained, training
from wordle_rl.backends import loggers
from wordle_rl.commands import players
from wordle_rl.commands.eval import choose_games
from wordle_rl.commands.resume import describe_untaught_prompt
from wordle_rl.game.rules import Game
from wordle_rl.policy.model_names import locate
from wordle_rl.prompts.styles import Places, Symbols
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.settings import LoggerSettings

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that held out 6 test secrets and 6 validation secrets, with logger=none."""
    return trained(tmp_path_factory.mktemp("runs") / "small")


def test_without_tensorboard_a_run_does_not_advertise_it(tmp_path, capsys):
    folder = trained(tmp_path / "runs")
    printed = capsys.readouterr().out
    assert f"full games: python eval.py run={folder}" in printed and "--logdir" not in printed


def test_a_refused_part_of_a_resume_names_the_way_to_it(small, refused):
    told = refused(training(f"resume={small} reward=win_only"))
    assert f"python train.py init_from={small} reward=win_only" in told
    told = refused(training(f"resume={small} model=mini"))
    assert told.endswith("start a new run: python train.py model=mini")


def test_a_prompt_that_an_embedded_model_was_not_taught_is_warned_about():
    style = Places()
    assert describe_untaught_prompt(locate("embedded/lexicon"), style) is None
    told = describe_untaught_prompt(locate("embedded/tiny"), style)
    assert told is not None and told.startswith("warning: the model tiny was taught prompt=symbols")
    assert describe_untaught_prompt("Qwen/Qwen2.5-3B-Instruct", Symbols()) is None


def test_an_evaluation_warns_of_such_a_prompt(tmp_path, capsys):
    evaluation(f"model=micro prompt=letters limit=1 compare=false output_dir={tmp_path}")()
    assert "warning: the model micro was taught prompt=symbols" in capsys.readouterr().err


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


def test_an_evaluation_ends_with_its_tables_unless_json_is_wanted(tmp_path, capsys):
    evaluation(f"player=random limit=5 compare=false output_dir={tmp_path}")()
    printed = capsys.readouterr().out
    [folder] = tmp_path.iterdir()
    assert printed.index(str(folder)) < printed.index("secrets: test")
    assert '"win_rate"' not in printed
    assert printed.rstrip().splitlines()[-1].startswith(" ")  # the histogram's last bar


def test_other_words_do_not_blame_an_opener_that_nobody_gave(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("\n".join(["crane", "slate", "sleep", "crept", "abide", "zonal", "vixen"]))
    line = f"player=entropy words=custom words.answers={words} words.test=2 words.val=2"
    summary = evaluation(f"{line} compare=false output_dir={tmp_path / 'out'}")()
    assert summary["win_rate"] == 1.0


def test_weights_and_biases_gets_the_name_of_the_run(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(loggers, "WandbLogger", lambda **settings: given.update(settings))
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: name)
    folder = tmp_path / "2026-11-20_10-00-00_mini_1-abcdef"
    loggers.build_loggers(LoggerSettings(tensorboard=False, wandb=True), folder)
    assert given["name"] == folder.name and given["project"] == "wordle-rl"


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
    assert choices.startswith("choices: model=micro")
    assert seconds < 12 * alone
