"""Tables are as wide as the terminal, and know about it under a progress bar too."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from wordle_rl.runs.terminal import WIDEST, columns, shows_colours
from wordle_rl.training.progress import show_steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 40) -> Terminal:
    """Make the standard output a terminal. Not a fixture, as pytest replaces it."""
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return out


def test_a_table_fills_a_terminal_up_to_100_columns(monkeypatch, capsys):
    assert columns() == WIDEST and not shows_colours()  # in a pipe
    open_terminal(monkeypatch)
    assert columns() == 40
    open_terminal(monkeypatch, 300)
    assert columns() == WIDEST


def test_a_terminal_is_one_under_the_bar_of_the_steps_too(monkeypatch):
    terminal = open_terminal(monkeypatch)
    with show_steps(0, 10, Console(file=terminal, force_terminal=True, width=40)):
        assert columns() == 40 and shows_colours()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(name, value, monkeypatch):
    open_terminal(monkeypatch)
    assert shows_colours()
    monkeypatch.setenv(name, value)
    assert not shows_colours()
