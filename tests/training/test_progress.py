"""What is said on the terminal while a command works."""

import io
import sys
import threading
import time

import pytest

from tests.helpers.configs import composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Game
from wordle_rl.training.progress import GameCount, announce, describe_generations, describe_step
from wordle_rl.training.work import plan_work


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


def test_other_sizes_of_a_group_take_longer_in_all_parts_but_optimizer_and_validation():
    times = {"time/step": 90.0, "time/optimizer": 10.0}
    line = describe_generations(times, 8, 100, 3600.0, (2, 4, 8, 16))
    assert line.endswith("2: 30 s, 1.8 h; 4: 50 s, 2.4 h; 8: 90 s, 3.5 h; 16: 2.8 min, 5.7 h")


@pytest.mark.parametrize(
    ("given", "games", "prompts"),
    [
        ("rollout=game", 4 * 3, 4 * 3 * 6),
        ("rollout=best_of", 4, 4 * 3 * 6),
        ("rollout=turn trainer.report=false", 4 * 3, 4 * 3),
    ],
)
def test_the_work_of_a_run_counts_every_game_and_answer(given, games, prompts):
    small = "rollout.groups=4 num_generations=3 words.val=10 words.test=12 trainer.steps=15"
    extra = " trainer.watch_every=0 sampling.max_tokens=7 trainer.validation_samples=1"
    setup = build_experiment(resolve(composed(*small.split(), *extra.split(), *given.split())))
    work = plan_work(setup, 1)
    assert work.step == (games, prompts, prompts * 7)
    # Validations before the first step, after the tenth and the last one; a report at each end.
    rest = 3 * 10 + (2 * 12 if setup.trainer.report else 0)
    assert work.run == (15 * games + rest, 15 * prompts + rest * 6, (15 * prompts + rest * 6) * 7)
    assert work.held_out_share == rest / (10 + (12 if setup.trainer.report else 0))
