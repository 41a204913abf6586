"""The numbers of a run on the terminal, the same for every backend."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from wordle_rl.evaluation.boards import bold
from wordle_rl.evaluation.intervals import change_interval
from wordle_rl.game.rules import Game, GameStatus
from wordle_rl.runs.progress import dated, describe_time
from wordle_rl.training.metrics import noise_scale

GUESS = "reward/guess"  # beside the metrics of a step, for the terminal and the loggers
IDLE = "groups/skipped"
AGREEMENT, GUESSES = "update/agreement", "update/guesses"
_HEAD = 20  # lines of steps below a head
_HALVES = 10  # steps until their halves are compared, then twice as many, and at the end
_REWARDS = {  # column -> metric, scale, digits
    "words": ("skill/turn_2/expected_remaining", 1, 1),
    "reward": (GUESS, 1, 3),
    "win%": ("train/win_rate", 100, 1),
    "won in": ("train/guesses_won", 1, 2),
    "games/s": ("games_per_second", 1, 0),
}
_LOSSES = {"loss": ("loss", 1, 4), "gradient": ("grad_norm", 1, 3), "s/step": ("time/step", 1, 1)}
_SIGNS = {"words": -1, "reward": 1, "win%": 1, "loss": -1}  # column -> sign of a gain
_WATCH = {"test secrets, greedy,": "watch/test/win_rate"}


class StepLines:
    """Lines of steps with columns that stand below each other, and a head now and then."""

    def __init__(self, steps: int, rewarded: bool = True, whole_games: bool = False) -> None:
        """rewarded: whether rewards train, of guesses or whole games; otherwise it has a loss."""
        self._columns = {**(_REWARDS if rewarded else _LOSSES)}
        if rewarded and whole_games:
            self._columns["reward"] = ("reward/mean", 1, 3)
        self._steps, self._lines = steps, 0
        self._values: dict[str, list[float]] = {name: [] for name in self._columns}
        self._agreement: list[float] = []

    def format(self, done: int, metrics: Mapping[str, float], left: float) -> list[str]:
        """The line of a step, after a head where one is due. left: seconds of the whole command."""
        step, cells = f"step {done}/{self._steps}", {}
        for name, (metric, scale, digits) in self._columns.items():
            value = scale * metrics.get(metric, math.nan)
            cells[name] = "-" if math.isnan(value) else f"{value:.{digits}f}"
            self._values[name].append(value)
        cells["left"] = describe_time(left)
        self._agreement.append(metrics.get(AGREEMENT, math.nan))
        self._guesses = metrics.get(GUESSES, math.nan)
        width = 5 + 2 * len(f"{self._steps}/")
        lines = [f"{step:<{width}}" + "".join(f"{cell:>9}" for cell in cells.values())]
        if idle := metrics.get(IDLE, 0.0):
            lines[0] += f"  {idle:.0%} equal"
        if self._lines % _HEAD == 0:
            lines.insert(0, " " * width + "".join(f"{name:>9}" for name in cells))
        self._lines += 1
        return [*map(dated, lines), *self._compare_halves(done)]

    def _compare_halves(self, done: int) -> list[str]:
        """What moved between the halves of the steps that this process did, where that is due."""
        count, half, lines = self._lines, self._lines // 2, []
        if count < _HALVES or (done < self._steps and math.log2(count / _HALVES) % 1):
            return []
        for name, sign in _SIGNS.items():
            data, form = self._values.get(name, []), f".{self._columns.get(name, [1])[-1]}f"
            parts = [[v for v in part if not math.isnan(v)] for part in (data[:half], data[-half:])]
            if min(map(len, parts)) >= 2:
                before, after = (format(fmean(part), form) for part in parts)
                label = "words left after two guesses" if name == "words" else name
                change = describe_difference(change_interval(*parts), sign, form)
                lines.append(f"  {label:<28}{before:>8} -> {after:<8}{change}")
        steps = f"{done - count + 1} to {done - count + half} against {done - half + 1} to {done}"
        lines += describe_noise(self._agreement, self._guesses)
        return lines and [bold(f"Does it learn? Steps {steps}, at 99 %:"), *lines]


def describe_difference(interval: Iterable[float], sign: int, form: str) -> str:
    """What an interval says: better or worse by how much. sign: -1 where less is better."""
    least, most = sorted(interval, key=abs)
    if least * most <= 0:
        return "cannot be told yet"
    verdict = "better" if sign * (least + most) > 0 else "worse"
    return f"{verdict} by {abs(least):{form}} to {abs(most):{form}}"


def describe_noise(agreement: Sequence[float], guesses: float) -> list[str]:
    """One line if an update has fewer guesses than its noise scale, none if not or unknown.

    agreement: of the steps so far, NaN where unknown. guesses: of one update.
    """
    if sum(not math.isnan(value) for value in agreement) < _HALVES:
        return []
    scale = noise_scale(agreement, guesses)
    if not scale > guesses:
        return []
    reason = "its halves do not agree" if math.isinf(scale) else f"its noise scale is {scale:,.0f}"
    return [
        f"  An update has {guesses:,.0f} guesses, and {reason}: it needs more guesses, or a lower "
        "optim.lr and more steps."
    ]


def describe_wins(start: Mapping[str, float], now: Mapping[str, float], drawn: str) -> str:
    """Wins on the same secrets as at the start, if that is known; "" for a step without any.

    drawn: how validation chooses its words.
    """
    parts = []
    for name, metric in {f"validation, {drawn},": "val/win_rate", **_WATCH}.items():
        if metric in now:
            before = f"{100 * start[metric]:.1f} -> " if metric in start else ""
            parts.append(f"{name} {before}{100 * now[metric]:.1f} %")
            if f"{metric}_low" in now:
                low, high = (100 * now[f"{metric}_{end}"] for end in ("low", "high"))
                parts[-1] += f" (95 %: {low:.0f}-{high:.0f})"
    if not parts:
        return ""
    return f"wins {'since' if start else 'at'} the start: {', '.join(parts)}"


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

    @property
    def over(self) -> int:
        return self._earlier + sum(g.status is not GameStatus.PLAYING for g in self._batch)

    def __str__(self) -> str:
        turn = max((game.state.turn for game in self._batch), default=0)
        return f"{self.over} of {self.total} games, turn {turn}"
