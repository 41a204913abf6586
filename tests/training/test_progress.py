"""What is said on the terminal while a command works."""

import io
import sys
import threading
import time

from wordle_rl.game.rules import Game
from wordle_rl.training.progress import GameCount, announce, describe_generations, describe_step


def test_work_that_takes_long_is_told_every_so_often_and_short_work_never(capsys):
    with announce("loading", every=0.02):
        time.sleep(0.15)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3 and lines[0] == "loading, 0 s so far"
    with announce("loading"):
        pass
    assert capsys.readouterr().out == ""


def test_games_are_counted_over_batches():
    count = GameCount(6)
    won, lost = Game("crane", {"crane"}), Game("slate", {"crane"})
    won.play("crane")
    lost.forfeit()
    count.look([won, lost])
    count.next_batch()
    games = [Game("crane", {"slate", "crane"}) for _ in range(4)]
    games[0].play("crane")
    games[1].play("slate")
    count.look(games)
    assert str(count) == "3 of 6 games, turn 1"


def test_a_line_tells_the_step_and_its_values():
    values = {"loss": 0.25, "train/win_rate": 0.25, "val/win_rate": 0.52, "lr": 1e-4}
    interval = {"val/win_rate_low": 0.4644, "val/win_rate_high": 0.5752}
    assert describe_step(12, values | interval) == "step 12 loss=0.25 win%=25 val%=52(46-58)"


def test_other_sizes_of_a_group_take_longer_in_all_parts_but_the_optimizer():
    line = describe_generations({"time/step": 90.0, "time/optimizer": 10.0}, now=8, steps=100)
    assert line.endswith("2: 30 s, 50.0 min; 4: 50 s, 83.3 min; 8: 90 s, 2.5 h; 16: 2.8 min, 4.7 h")


def test_work_goes_on_when_nobody_reads_its_progress_any_more(monkeypatch):
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    said = threading.Event()

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            said.set()
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    with announce("loading", every=0.01):
        assert said.wait(10)
    assert not failed
