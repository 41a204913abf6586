"""How wide the terminal is, and whether it shows colours; rich knows."""

from __future__ import annotations

WIDEST = 100  # columns at most, and where there is no terminal


def columns() -> int:
    """The width for tables and boards."""
    from rich.console import Console

    console = Console()
    return min(console.width, WIDEST) if console.is_terminal else WIDEST


def shows_colours() -> bool:
    """Whether the standard output shows colours. NO_COLOR switches them off (no-color.org)."""
    from rich.console import Console

    console = Console()
    return console.color_system is not None and not console.no_color
