"""Progress on the terminal while a command works, the same for every backend."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from wordle_rl.game.rules import Game, GameStatus

VAL = "val/win_rate"
_SHOWN = {  # name on the terminal -> metric
    "loss": "loss",
    "reward": "reward/mean",
    "win%": "train/win_rate",
    "val%": VAL,
    "no_spread%": "groups/zero_spread",
    "games/s": "games_per_second",
}


def describe_step(number: int, metrics: Mapping[str, float]) -> str:
    """The line of a step: its number and the few metrics for the terminal.

    Validation wins have their 95 % interval behind them where it is known.
    """
    parts = [f"step {number}"]
    for name, metric in _SHOWN.items():
        if metric in metrics:
            scale = 100.0 if name.endswith("%") else 1.0
            parts.append(f"{name}={scale * metrics[metric]:.4g}")
            if metric == VAL and f"{VAL}_low" in metrics:
                low, high = (100 * metrics[f"{VAL}_{end}"] for end in ("low", "high"))
                parts[-1] += f"({low:.0f}-{high:.0f})"
    return " ".join(parts)


def describe_time(seconds: float) -> str:
    """A time as 48 s, as 2.5 min from 100 s on, and as 2.5 h from 100 min on."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def describe_generations(
    metrics: Mapping[str, float], now: int, steps: int, held_out: float, sizes: Sequence[int]
) -> str:
    """What sizes of a group take. metrics: of a step with groups of size `now`.

    The optimizer's time stays the same, and so do the seconds `held_out` of the run's validations
    and reports. All other times grow with the number of rollouts.
    """
    fixed = metrics.get("time/optimizer", 0.0)
    times = {n: fixed + (metrics["time/step"] - fixed) * n / now for n in sizes}
    each = (
        f"{n}: {describe_time(t)}, {describe_time(t * steps + held_out)}" for n, t in times.items()
    )
    return (
        f"num_generations, with the time of a step and of the run, {steps:,} steps and "
        f"{describe_time(held_out)} of validations and reports: {'; '.join(each)}"
    )


@contextmanager
def announce(what: Callable[[], str] | str, *, every: float = 10.0) -> Iterator[None]:
    """Print what the block does and how long it has run, every `every` seconds.

    A separate thread prints, so the work itself need not help. Shorter work prints nothing.
    """
    begin = time.monotonic()
    over = threading.Event()

    def print_lines() -> None:
        while not over.wait(every):
            text = what if isinstance(what, str) else what()
            with suppress(BrokenPipeError):  # the command itself says that nobody reads any more
                print(f"{text}, {time.monotonic() - begin:.0f} s so far", flush=True)

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield
    finally:
        over.set()
        printer.join()


class GameCount:
    """Counts the games of several batches. str() gives how many are over, and the batch's turn."""

    def __init__(self, total: int) -> None:
        self.total, self._earlier = total, 0
        self._batch: Sequence[Game] = ()

    def look(self, games: Sequence[Game]) -> None:
        """Look at the games of the current batch, again after each turn."""
        self._batch = games

    def next_batch(self) -> None:
        """Add up the current batch. The next look() is at another one."""
        self._earlier, self._batch = self._earlier + len(self._batch), ()

    def __str__(self) -> str:
        over = sum(game.status is not GameStatus.PLAYING for game in self._batch)
        turn = max((game.state.turn for game in self._batch), default=0)
        return f"{self._earlier + over} of {self.total} games, turn {turn}"
