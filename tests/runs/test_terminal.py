"""Text is as wide as the terminal, and knows about it under a progress bar too."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from wordle_rl.backends.step_bar import StepBar
from wordle_rl.runs.terminal import TIE, WIDEST, columns, fold, is_terminal, shows_colours

LINE = "exported to /a/long/path/without/any/blank/in/it and then some more words follow it"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make the standard output a terminal of 40 columns. Not a fixture, as pytest replaces it."""
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return out


def test_lines_are_wrapped_on_a_terminal_and_paths_stay_whole(monkeypatch):
    open_terminal(monkeypatch)
    assert fold(LINE).split("\n") == [
        "exported to",
        "  /a/long/path/without/any/blank/in/it",
        "  and then some more words follow it",
    ]
    assert fold("short\n\nlines") == "short\n\nlines"
    assert fold("a" * 35 + f", and{TIE}2") == "a" * 35 + ",\n  and 2"
    assert columns() == 40


def test_elsewhere_a_line_stays_one_line(capsys):
    assert fold(2 * LINE) == 2 * LINE
    assert columns() == WIDEST and not shows_colours()


def test_a_wide_terminal_is_not_filled(monkeypatch):
    open_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "300")
    assert columns() == WIDEST


def test_a_terminal_is_one_under_the_bar_of_the_steps_too(monkeypatch):
    terminal = open_terminal(monkeypatch)
    with StepBar(0, 10, Console(file=terminal, force_terminal=True, width=40)):
        assert is_terminal() and shows_colours()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(name, value, monkeypatch):
    open_terminal(monkeypatch)
    assert shows_colours()
    monkeypatch.setenv(name, value)
    assert is_terminal() and not shows_colours()
