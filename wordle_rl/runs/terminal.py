"""How wide the terminal is, and whether it shows colours; lines are wrapped at blanks to fit it.

Asks for the terminal itself, because the bar below the steps takes the place of sys.stdout.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

WIDEST = 100  # columns at most, and where there is no terminal
TIE = "\N{NO-BREAK SPACE}"


def is_terminal() -> bool:
    """Whether the standard output is a terminal, under a progress bar too."""
    return bool(getattr(sys.stdout, "rich_proxied_file", sys.stdout).isatty())


def shows_colours() -> bool:
    """Whether the standard output shows colours. NO_COLOR switches them off (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return is_terminal() and not plain


def columns() -> int:
    """The width for tables and boards."""
    if not is_terminal():
        return WIDEST
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)


def fold(text: str) -> str:
    """Lines, on a terminal wrapped at blanks. Words such as paths stay whole, to be copied.

    In a file or a pipe each stays one line. TIE becomes a blank at which no line is wrapped.
    """
    if not is_terminal():
        return text.replace(TIE, " ")
    wrapper = textwrap.TextWrapper(
        columns(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(wrapper.fill, text.split("\n"))).replace(TIE, " ")
