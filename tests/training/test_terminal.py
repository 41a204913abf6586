"""A run on a terminal: a line per step, and a bar below with the time left."""

from __future__ import annotations

import io

import pyte
import pytest
from rich.console import Console

from wordle_rl.training import progress
from wordle_rl.training.progress import describe_step, show_steps

VALIDATED = {
    "loss": -0.012345, "reward/mean": 12.345, "train/win_rate": 0.4531, "val/win_rate": 0.52,
    "val/win_rate_low": 0.4644, "val/win_rate_high": 0.5752, "groups/zero_spread": 0.25,
    "games_per_second": 512.3456,
}  # fmt: skip


def test_validation_wins_have_their_interval_behind_them():
    assert " val%=52(46-58) " in describe_step(100, VALIDATED)
    assert "val%" not in describe_step(100, {"loss": 0.5})


@pytest.mark.parametrize("columns", [80, 100])
def test_lines_stay_above_the_bar_and_fit_the_terminal(columns, monkeypatch):
    clock = iter([100.0, 103.0, 106.0])  # two steps took six seconds, and 47 of 49 are left
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=columns, highlight=False)
    with show_steps(51, 100, console) as bar:
        bar.step(52, VALIDATED)
        print("boards")
        bar.step(53, VALIDATED)
        going = screen(out.getvalue(), columns)
    assert [line for line in going if line][-1].startswith("step 53 of 100 ")
    assert [line for line in going if line][-1].endswith(" 2.4 min left")
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


def test_without_a_terminal_each_line_ends_in_the_time_left(capsys):
    with show_steps(51, 100) as lines:
        lines.step(52, {"loss": 0.5})
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("step 52 loss=0.5 left=")
