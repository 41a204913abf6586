"""Progress on the terminal while a command works, the same for every backend."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from wordle_rl.game.rules import Game, GameStatus

_EVERY = 10.0  # seconds between two lines about the same work

_SHOWN = {  # name on the terminal -> metric
    "loss": "loss",
    "reward": "reward/mean",
    "win%": "train/win_rate",
    "val%": "val/win_rate",
    "no_spread%": "groups/zero_spread",
    "games/s": "games_per_second",
}


def select_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """The few metrics for the terminal, by their names there."""
    return {
        name: metrics[metric] * (100.0 if name.endswith("%") else 1.0)
        for name, metric in _SHOWN.items()
        if metric in metrics
    }


def describe_time(seconds: float) -> str:
    """A time as 48 s, or as 2.5 min from 100 s on."""
    return f"{seconds:.0f} s" if seconds < 99.5 else f"{seconds / 60:.1f} min"


def print_line(text: str) -> None:
    """Print a line while a progress bar may have left the cursor at the end of its own."""
    clear = "\r\033[K" if sys.stdout.isatty() else ""
    print(f"{clear}{text}", flush=True)


@contextmanager
def announce(what: Callable[[], str] | str, *, every: float = _EVERY) -> Iterator[None]:
    """Print what the block does and how long it has run, every `every` seconds.

    A separate thread prints, so the work itself need not help. Shorter work prints nothing.
    """
    begin = time.monotonic()
    over = threading.Event()

    def print_lines() -> None:
        while not over.wait(every):
            text = what if isinstance(what, str) else what()
            print_line(f"{text}, {time.monotonic() - begin:.0f} s so far")

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield
    finally:
        over.set()
        printer.join()


class GameCount:
    """Counts the games of several batches. str() gives games done, wins, speed and time left.

    The games of a batch end together, so the time left counts turns: a game at its third turn of
    six is half done.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = self.wins = 0
        self._played = 0.0  # games that are over, and parts of the others
        self._earlier = (0, 0)  # games and wins of finished batches
        self._begin = time.monotonic()

    def look(self, games: Sequence[Game]) -> None:
        """Count the games of the current batch, again after each turn."""
        done, wins = self._earlier
        self.done = done + sum(game.status is not GameStatus.PLAYING for game in games)
        self.wins = wins + sum(game.won for game in games)
        going = (game.state for game in games if game.status is GameStatus.PLAYING)
        self._played = self.done + sum(state.turn / state.max_turns for state in going)

    def next_batch(self) -> None:
        """Add up the current batch. The next look() is at another one."""
        self._earlier = self.done, self.wins

    def __str__(self) -> str:
        text = f"{self.done} of {self.total} games done, {self.wins} won"
        if self._played:
            rate = self._played / (time.monotonic() - self._begin)
            left = describe_time((self.total - self._played) / rate)
            text += f", {rate:.3g} games/s, {left} left"
        return text


class StepLines:
    """Prints a line per step, with the time left for the other steps and their validations."""

    def __init__(self, steps: int) -> None:
        """steps: how many are left."""
        self._steps, self._done, self._begin = steps, 0, time.monotonic()

    def step(self, number: int, values: Mapping[str, float]) -> None:
        self._done += 1
        left = (self._steps - self._done) * (time.monotonic() - self._begin) / self._done
        text = " ".join(f"{name}={value:.4g}" for name, value in values.items())
        print(f"step {number} {text} left={describe_time(left).replace(' ', '')}", flush=True)
