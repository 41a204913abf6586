"""What is said on the terminal while a command works."""

from __future__ import annotations

import time

import pytest

from wordle_rl.game.rules import Game
from wordle_rl.training import progress
from wordle_rl.training.progress import (
    GameCount,
    StepLines,
    announce,
    describe_time,
)


def test_a_line_tells_the_step_its_values_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    clock = iter([100.0, 103.0, 106.0])  # two steps took six seconds, seven are left
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    lines = StepLines(10, 19)
    lines.step(11, {"loss": 0.25})
    lines.step(12, {"reward/mean": 1.5, "train/win_rate": 0.25, "lr": 1e-4})
    assert capsys.readouterr().out.splitlines() == [
        "step 11 loss=0.25 left=24s",
        "step 12 reward=1.5 win%=25 left=21s",
    ]


def test_work_that_takes_long_is_told_every_so_often_and_short_work_never(capsys):
    with announce("loading", every=0.02):
        time.sleep(0.15)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3 and lines[0] == "loading, 0 s so far"
    time.sleep(0.06)
    assert capsys.readouterr().out == ""  # it is over
    with announce("loading"):
        pass
    assert capsys.readouterr().out == ""


def test_games_are_counted_over_batches_with_wins_speed_and_the_time_that_is_left(monkeypatch):
    now = iter([100.0, 104.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    count = GameCount(24)
    assert str(count) == "0 of 24 games, 0 won"
    won, lost, going = Game("crane", {"crane"}), Game("slate", {"crane"}), Game("sleep", {"crane"})
    won.play("crane")
    lost.forfeit()
    count.look([won, lost, won])
    count.next_batch()
    look = count.look
    for games in ([going, going], [won, going]):
        look(games)
    assert str(count) == "4 of 24 games, 3 won, 1 games/s, 20 s left"


def test_the_time_left_counts_the_turns_of_games_that_are_not_over(monkeypatch):
    now = iter([0.0, 6.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    count = GameCount(4)
    games = [Game("crane", {"slate", "crane"}) for _ in range(4)]
    for game in games:
        game.play("slate")
        game.play("slate")
    count.look(games)
    # Eight of 24 turns took six seconds, so the other sixteen take twelve.
    assert str(count) == "0 of 4 games, 0 won, 0.222 games/s, 12 s left"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (99.4, "99 s"), (99.6, "1.7 min"), (3600.0, "60.0 min")]
)
def test_short_times_are_in_seconds_and_long_ones_in_minutes(seconds, said):
    assert describe_time(seconds) == said
