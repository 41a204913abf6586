"""What a command is doing, on standard error: one line in place, or dated lines.

Standard output is for results, so a pipe never gets any of this. Blocks of work nest: the innermost
is shown, with the bar of the outermost that has an amount. A thread draws, so the work itself need
not help.
"""

import math
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple, TextIO


class Amount(NamedTuple):
    """How much of a block is done."""

    done: float
    total: float
    left: float | None = None  # seconds; NaN if unknown, None as fast as until now


class _Block(NamedTuple):
    what: Callable[[], str] | str
    amount: Callable[[], Amount] | None
    begin: float


_blocks: list[_Block] = []  # a process has one terminal, so all threads share them
_displays: list[Any] = []  # rich's live display, while there is one
_muted = threading.Event()
_COMMAND = re.compile(r"\b(python|wordle-rl|tensorboard) |/\w")  # in a command or a path


@contextmanager
def announce(
    what: Callable[[], str] | str,
    amount: Callable[[], Amount] | None = None,
    *,
    first: float = 2.0,
    every: float = 10.0,
) -> Iterator[None]:
    """Show what the block does, how long it has run, and how much of the amount is done.

    first, every: seconds until dated lines where none is rewritten. Shorter work prints none.
    """
    if _muted.is_set():
        yield
        return
    block, stop = _Block(what, amount, time.monotonic()), threading.Event()
    _blocks.append(block)
    printer = threading.Thread(target=_print_lines, args=(block, stop, first, every), daemon=True)
    if not _can_rewrite():
        printer.start()
    elif not _displays:
        _displays.append(_open_display())
    try:
        yield
    finally:
        _blocks.remove(block)
        if not _blocks and _displays:
            _displays.pop().stop()
        stop.set()
        if printer.ident:
            printer.join()


def mute() -> None:
    """Show no progress in this process from now on, because another process shows the same."""
    _muted.set()


def dated(text: str) -> str:
    """A line of a log on standard output: behind the time where that is no terminal."""
    return text if _is_terminal(sys.stdout) else _date(text)


def describe_time(seconds: float) -> str:
    """A time as 48 s, as 2.5 min from 100 s on, and as 2.5 h from 100 min on."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _date(text: str) -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}"


def _is_terminal(stream: TextIO) -> bool:
    """Whether lines of a stream can be rewritten."""
    file = getattr(stream, "rich_proxied_file", stream)  # while rich prints above its line
    return file.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _can_rewrite() -> bool:
    """Whether progress is one line that is rewritten.

    Not where results go into a pipe: its reader may print them on the same terminal.
    """
    with suppress(OSError):  # a closed standard output
        if stat.S_ISFIFO(os.fstat(1).st_mode):
            return False
    return _is_terminal(sys.stderr)


def _print_lines(block: _Block, stop: threading.Event, wait: float, every: float) -> None:
    while not stop.wait(wait):
        wait = every
        if block.what and _blocks[-1:] == [block]:
            with suppress(BrokenPipeError):  # the command itself says that nobody reads any more
                text, duration, amount, remaining = _describe()
                progress = f", {amount.done:g} of {amount.total:g}, {remaining}" if amount else ""
                line = _date(f"{text}, {duration}{progress}")
                # In one piece: another block's thread may print at this moment.
                print(f"{line}\n", end="", file=sys.stderr, flush=True)


def _describe() -> tuple[str, str, Amount | None, str]:
    """The innermost block and its time, the amount of the outermost that has one, the time left."""
    blocks, now, amount, remaining = [*_blocks], time.monotonic(), None, math.nan
    block = ([b for b in blocks if b.what] or [_Block("working", None, now)])[-1]
    label = block.what if isinstance(block.what, str) else block.what()
    pairs = [(b.amount, b.begin) for b in blocks if b.amount]
    if pairs:
        count, begin = pairs[0]
        amount = count()
        if amount.left is not None:
            remaining = amount.left
        elif amount.done:
            remaining = (now - begin) * (amount.total / amount.done - 1)
    text = "? left" if math.isnan(remaining) else f"{describe_time(remaining)} left"
    return label, describe_time(now - block.begin), amount, text if amount else ""


def _open_display() -> Any:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Column, Table
    from rich.text import Text

    spinner = Spinner("dots")

    def render() -> Table:
        text, duration, amount, remaining = _describe()
        cells = (ProgressBar(amount.total, amount.done, width=12), remaining) if amount else ()
        cols = (Column(no_wrap=True) for _ in (spinner, *cells))
        grid = Table.grid(*cols, Column(overflow="ellipsis"), Column(no_wrap=True), padding=(0, 1))
        grid.add_row(spinner, *cells, Text(text, no_wrap=True, overflow="ellipsis"), duration)
        return grid

    class Above(Console):
        def print(self, *parts: Any, **how: Any) -> None:
            """Break prose between words. A path or a command stays in one piece, to be pasted."""
            super().print(*parts, soft_wrap=any(_COMMAND.search(str(one)) for one in parts), **how)

    live = Live(
        console=Above(stderr=True, highlight=False),
        get_renderable=render,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # a file gets its lines as they are
    )
    live.start()
    live.console.show_cursor()  # a second Ctrl-C ends the process at once
    return live
