"""Tables are as wide as the terminal, and know its colours."""

from __future__ import annotations

import io

from wordle_rl.runs.terminal import WIDEST, columns, shows_colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_fills_a_terminal_up_to_100_columns_and_knows_its_colours(monkeypatch):
    assert columns() == WIDEST and not shows_colours()  # in a pipe
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in (("COLUMNS", "40"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    assert columns() == 40 and shows_colours()
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")
    assert columns() == WIDEST and not shows_colours()
