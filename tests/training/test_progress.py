"""What is said on the terminal while a command works."""

import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from subprocess import PIPE

import numpy as np
import pyte
import pytest

from tests.helpers.configs import composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import Game
from wordle_rl.runs.progress import Amount, announce
from wordle_rl.training.metrics import noise_scale
from wordle_rl.training.progress import GameCount, StepLines, describe_wins
from wordle_rl.training.work import plan_work


def test_work_that_takes_long_is_told_every_so_often_and_short_work_never(capsys):
    with announce("loading", lambda: Amount(3, 4), first=0.02, every=0.02):
        out = err = ""
        while err.count("\n") < 3:
            time.sleep(0.02)
            streams = capsys.readouterr()
            out, err = out + streams.out, err + streams.err
    assert out == "" and re.search(r" loading, \d+ s, 3 of 4, \d+ s left\n", err)
    with announce("loading"):
        pass
    assert capsys.readouterr() == ("", "")


SCRIPT = """
import time
from wordle_rl.runs.progress import Amount, announce
with announce("", lambda: Amount(2, 8, 90.0)), announce("outer work"):
    print("/" + "longer than the screen/" * 3)
    print("speaking " * 12)
    with announce("inner work with a name that is longer than the screen is wide"):
        time.sleep(0.6)
    time.sleep(0.6)
"""


def watch(command: Sequence[str], columns: int, stdout: int | None = None) -> list[list[str]]:
    """Every screen that a command makes on a terminal, as lines. stdout: where it goes instead."""
    screen, (parent_fd, child_fd), screens = pyte.Screen(columns, 24), pty.openpty(), []
    termios.tcsetwinsize(child_fd, (24, columns))
    stream = pyte.ByteStream(screen)
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    out = child_fd if stdout is None else stdout
    with subprocess.Popen(command, stdin=child_fd, stdout=out, stderr=child_fd, env=env):
        os.close(child_fd)
        with suppress(OSError):  # the terminal was closed
            while data := os.read(parent_fd, 65536):
                stream.feed(data)
                screens.append([line.rstrip() for line in screen.display])
    os.close(parent_fd)
    return screens


def test_a_terminal_shows_what_is_done_in_one_line_that_leaves_nothing_behind():
    screens = watch([sys.executable, "-c", SCRIPT], columns=60)
    *path, prose, rest = screens[-1][:4]
    assert "".join(line.ljust(60) for line in path).strip() == "/" + "longer than the screen/" * 3
    assert f"{prose} {rest}".split() == ["speaking"] * 12 and not any(screens[-1][4:])
    status = [[row for row in screen if "work" in row] for screen in screens]
    assert all(len(rows) <= 1 for rows in status), "one line"
    lines = [rows[0] for rows in status if rows]
    assert any(re.search(r" 90 s left inner work with .*… \d s", row) for row in lines)
    assert any(re.search(r"outer work [1-9]\d* s", row) for row in lines)


def test_a_file_gets_the_results_alone_and_a_pipes_reader_no_line_in_its_way(tmp_path):
    with (tmp_path / "results").open("wb") as results:
        screens = watch([sys.executable, "-c", SCRIPT], 60, results.fileno())
    path, prose = (tmp_path / "results").read_text().splitlines()
    assert path == "/" + "longer than the screen/" * 3 and prose.split() == ["speaking"] * 12
    assert any(" 90 s left inner work" in screen[0] for screen in screens)
    reader, writer = os.pipe()  # as `| tee` has it, which prints on the same terminal
    os.set_blocking(reader, False)
    screens = watch([sys.executable, "-c", SCRIPT], 60, writer)
    assert len(os.read(reader, 9999).splitlines()) == 2
    assert not any(line for screen in screens for line in screen)
    os.close(reader), os.close(writer)


def test_a_further_process_of_a_run_leaves_the_progress_to_the_first_one():
    code = """
import time
from wordle_rl.runs.progress import announce, mute
mute()
with announce("loading", first=0.0):
    time.sleep(0.1)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout == result.stderr == b""


def test_games_are_counted_over_batches():
    count = GameCount(6)
    win, loss = Game("crane", {"crane"}), Game("slate", {"crane"})
    win.play("crane")
    loss.forfeit()
    count.look([win, loss])
    count.next_batch()
    games = [Game("crane", {"slate", "crane"}) for _ in range(4)]
    games[0].play("crane")
    games[1].play("slate")
    count.look(games)
    assert str(count) == "3 of 6 games, turn 1"


def test_columns_of_steps_stand_below_their_names():
    lines = StepLines(120)
    values = {"loss": 0.25, "train/win_rate": 0.255, "reward/guess": 0.8, "groups/zero_spread": 0}
    head, row = (line[20:] for line in lines.format(7, values, 90.0))  # behind the time
    assert row.split() == ["step", "7/120", "-", "0.800", "25.5", "-", "-", "90", "s"]
    for name, value in {"reward": "0.800", "win%": "25.5", "left": "90 s"}.items():
        assert head.index(name) + len(name) == row.index(value) + len(value)
    start, end = {"val/win_rate": 0.4}, {"val/win_rate": 0.52}
    text = describe_wins(start, end, "drawn at 0.7")
    assert text.endswith("validation, drawn at 0.7, 40.0 -> 52.0 %")


def test_a_run_says_what_has_moved_beyond_its_noise_between_the_halves_of_its_steps():
    for drift in (0, 1):
        words = 20 - drift * np.arange(10) + np.random.default_rng(0).normal(size=10)
        lines, name = StepLines(400), "skill/turn_2/expected_remaining"
        *_, line = [lines.format(n, {name: value}, 1.0)[-1] for n, value in enumerate(words, 1)]
        fall = words[:5].mean() - words[5:].mean()
        half = 3.355 * np.sqrt((words[:5].var(ddof=1) + words[5:].var(ddof=1)) / 5)  # Student's t
        assert line.endswith(f" better by {fall - half:.1f} to {fall + half:.1f}") == drift
        assert drift or not {"better", "worse"} & {*line.split()}


def test_work_goes_on_when_nobody_reads_its_progress_any_more():
    script = SCRIPT.replace("    print(", "    len(")  # what the command itself prints is its own
    code = script.replace('work")', 'work", first=0.01, every=0.01)') + "import os; os._exit(0)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=PIPE, stderr=PIPE) as process:
        assert process.stderr and process.stderr.readline() and process.stdout
        process.stderr.close()
        assert process.stdout.read() == b"" and process.wait() == 0


@pytest.mark.parametrize(
    ("given", "games"),
    [("rollout=game", 4 * 3), ("rollout=best_of", 4), ("rollout=turn trainer.report=false", 4 * 3)],
)
def test_the_work_of_a_run_counts_every_game(given, games):
    base = "rollout.groups=4 num_generations=3 words.val=10 words.test=12 trainer.steps=15"
    options = " trainer.watch_every=0 trainer.validation_samples=1"
    setup = build_experiment(resolve(composed(*base.split(), *options.split(), *given.split())))
    work = plan_work(setup, 1)
    assert work.games == games
    # Validations before the first step, after the tenth and the last one; a report at each end,
    # and one more with the first guess before training.
    rest = 3 * 10 + (3 * 12 if setup.trainer.report else 0)
    assert work.held_out == rest and f" {15 * games + rest:,} in all" in str(work)
    report_games = 12 if setup.trainer.report else 0
    assert [work.held_out_after(n) for n in (0, 9, 10, 14, 15)] == [
        2 * report_games + 10 * n for n in (2, 2, 1, 1, 0)
    ]


def test_the_noise_scale_is_found_from_the_agreement_of_halves():
    """Halves are made of many gradients whose mean and spread are known."""
    rng, size, width, scale = np.random.default_rng(3), 200, 2_000, 900.0
    truth = np.ones(width) / np.sqrt(width)
    cosines = []
    for _ in range(60):
        noise = rng.normal(0, np.sqrt(scale / width / size), (2, width))  # of a half's mean
        half_a, half_b = truth + noise
        cosines.append(float(half_a @ half_b / np.linalg.norm(half_a) / np.linalg.norm(half_b)))
    assert noise_scale([*cosines, np.nan], 2 * size) == pytest.approx(scale, rel=0.1)
    assert noise_scale([-0.1, 0.05], 10) == np.inf


@pytest.mark.parametrize(
    ("agreement", "told"), [(0.05, "1,900"), (0.9, ""), (-0.01, "do not agree"), (np.nan, "")]
)
def test_a_run_says_when_an_update_has_less_than_its_noise_scale(agreement, told):
    lines = StepLines(10)
    metrics = {"train/win_rate": 0.5, "update/agreement": agreement, "update/guesses": 200.0}
    output = [line for step in range(1, 11) for line in lines.format(step, metrics, left=0.0)]
    warnings = [line for line in output if "An update has 200 guesses" in line]
    assert len(warnings) == bool(told) and all(told in line for line in warnings)
