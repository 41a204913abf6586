"""What is said on the terminal while a command works."""

from __future__ import annotations

import io
import time

import pyte
import pytest
from rich.console import Console

from wordle_rl.game.rules import Game
from wordle_rl.training import progress
from wordle_rl.training.progress import GameCount, announce, show_steps

VALIDATED = {
    "loss": -0.012345, "reward/mean": 12.345, "train/win_rate": 0.4531, "val/win_rate": 0.52,
    "val/win_rate_low": 0.4644, "val/win_rate_high": 0.5752, "groups/zero_spread": 0.25,
    "games_per_second": 512.3456,
}  # fmt: skip


@pytest.fixture
def clock(monkeypatch):
    """Two steps take six seconds."""
    now = iter([100.0, 103.0, 106.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))


def test_a_line_tells_the_step_its_values_and_the_time_left(clock, capsys):
    with show_steps(10, 19) as lines:
        lines.step(11, {"loss": 0.25})
        lines.step(12, {"reward/mean": 1.5, "train/win_rate": 0.25, "lr": 1e-4})
    assert capsys.readouterr().out.splitlines() == [
        "step 11 loss=0.25 left=24s",
        "step 12 reward=1.5 win%=25 left=21s",
    ]


@pytest.mark.parametrize("columns", [80, 100])
def test_on_a_terminal_lines_stay_above_the_bar_and_fit_the_width(columns, clock):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=columns, highlight=False)
    with show_steps(51, 100, console) as bar:
        bar.step(52, VALIDATED)
        print("boards")
        bar.step(53, VALIDATED)
        last = [line for line in screen(out.getvalue(), columns) if line][-1]
    assert last.startswith("step 53 of 100 ") and last.endswith(" 2.4 min left")
    shown = "\n".join(screen(out.getvalue(), columns))
    order = ["step 52 loss=", "games/s=512.3", "boards", "step 53 loss="]
    places = [shown.index(text) for text in order]
    assert places == sorted(places)
    assert " of 100" not in shown  # the bar is gone once the steps are done


def screen(written: str, columns: int) -> list[str]:
    """The lines that a terminal shows after this output."""
    terminal = pyte.Screen(columns, 50)
    pyte.Stream(terminal).feed(written.replace("\n", "\r\n"))
    return [line.rstrip() for line in terminal.display]


def test_work_that_takes_long_is_told_every_so_often_and_short_work_never(capsys):
    with announce("loading", every=0.02):
        time.sleep(0.15)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3 and lines[0] == "loading, 0 s so far"
    with announce("loading"):
        pass
    assert capsys.readouterr().out == ""


def test_the_time_left_counts_batches_and_the_turns_of_games_that_are_not_over(monkeypatch):
    now = iter([0.0, 6.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    count = GameCount(6)
    assert str(count) == "0 of 6 games, 0 won"
    won, lost = Game("crane", {"crane"}), Game("slate", {"crane"})
    won.play("crane")
    lost.forfeit()
    count.look([won, lost])
    count.next_batch()
    games = [Game("crane", {"slate", "crane"}) for _ in range(4)]
    for game in games:
        game.play("slate")
        game.play("slate")
        game.play("slate")
    count.look(games)
    # Two games and half of the other four took six seconds, so the other half takes three.
    assert str(count) == "2 of 6 games, 1 won, 0.667 games/s, 3 s left"
