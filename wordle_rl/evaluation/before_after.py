"""What training changed: results before and after in one table, and games on the same secrets.

Plain text, at most 80 columns wide. The whole report of each player is in report_table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from wordle_rl.evaluation.boards import paired_boards
from wordle_rl.evaluation.intervals import Z95, compare_paired, standard_error
from wordle_rl.game.rules import Game

Summary = Mapping[str, Any]  # from wordle_rl.evaluation.summary.summarise, or a summary.json
Pair = tuple[Game, Game]  # before and after, on one secret


class Ended(Protocol):
    """A game that is over."""

    @property
    def won(self) -> bool: ...


_Ended = TypeVar("_Ended", bound=Ended)

_WIDTHS = (30, 18, 18, 9)  # columns of a row: its label, before, after, change


def _wins(summary: Summary) -> str:
    low, high = (100 * summary[f"win_rate_{end}"] for end in ("low", "high"))
    return f"{100 * summary['win_rate']:.1f} ({low:.1f}-{high:.1f})"


def _mean(summary: Summary) -> str:
    mean, upper = summary["mean_guesses_with_losses"], summary["mean_guesses_with_losses_high"]
    return f"{mean:.2f}" + ("" if upper is None else f" ±{upper - mean:.2f}")


def _share(key: str) -> Callable[[Summary], str]:
    return lambda summary: "-" if summary[key] is None else f"{100 * summary[key]:.1f}"


@dataclass(frozen=True)
class _Row:
    label: str
    key: str  # entry of the summaries
    text: Callable[[Summary], str]
    factor: float = 100  # of the change
    digits: int = 1  # of the change


_ROWS = (
    _Row("wins, % (95 %)", "win_rate", _wins),
    _Row("mean guesses, a loss as {}", "mean_guesses_with_losses", _mean, factor=1, digits=2),
    _Row("non-words, %", "non_words", _share("non_words")),
    _Row("guesses that fit all clues, %", "consistency", _share("consistency")),
    _Row("bits gained, % of the most", "bits_ratio", _share("bits_ratio")),
)
_LEGEND = (
    "non-words: share of all turns. The last two rows count accepted guesses only.",
    "A guess fits if it ignores no clue. bits: expected information of the guesses.",
)


def comparison_table(before: Summary, after: Summary, names: tuple[str, str]) -> str:
    """Wins, guesses and the use of clues before and after training, with the change.

    names: of the two players. An entry that is None, for want of guesses, is shown as -.
    """
    lost_as = 1 + max(summary["rules"]["max_turns"] for summary in (before, after))
    header = _line("", *names, "change")
    lines = [header, "-" * len(header)]
    for row in _ROWS:
        first, last = before[row.key], after[row.key]
        change = "-"
        if first is not None and last is not None:
            change = f"{row.factor * (last - first):+.{row.digits}f}"
        lines.append(_line(row.label.format(lost_as), row.text(before), row.text(after), change))
    return "\n".join([*lines, "", *_LEGEND])


def _line(*cells: str) -> str:
    label, *rest = (cell[:width] for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"{label:<{_WIDTHS[0]}}" + "".join(
        f"{cell:>{width + 1}}" for cell, width in zip(rest, _WIDTHS[1:], strict=True)
    )


def describe_change(pairs: Sequence[Pair]) -> str:
    """How many secrets were won only before and only after, and the gain with its interval.

    The interval takes each secret's two games as a pair.
    """
    before, after = zip(*pairs, strict=True)
    found = compare_paired(before, after)
    gains = [float(late.won) - float(early.won) for early, late in pairs]
    error = standard_error(gains, [game.secret for game in before])
    gain, half = 100 * found["difference"], 100 * Z95 * (error or 0.0)
    interval = "" if error is None else f" (95 %: {gain - half:+.1f} to {gain + half:+.1f})"
    return (
        f"Of the same {len(pairs)} secrets, {found['only_b_won']} were won only after training "
        f"and {found['only_a_won']} only before.\nGain in wins: {gain:+.1f} points{interval}."
    )


def choose_pairs(
    pairs: Sequence[tuple[_Ended, _Ended]], count: int
) -> tuple[list[tuple[_Ended, _Ended]], list[tuple[_Ended, _Ended]]]:
    """The first pairs with another result than before, and the first ones with the same.

    count: pairs in all. Half of them changed, rounded up, as far as there are so many. The choice
    does not depend on whether a change was for the better.
    """
    changed = [pair for pair in pairs if pair[0].won != pair[1].won]
    same = [pair for pair in pairs if pair[0].won == pair[1].won]
    first = min(len(changed), max((count + 1) // 2, count - len(same)))
    return changed[:first], same[: count - first]


def show_pairs(
    pairs: Sequence[Pair], count: int, titles: tuple[str, str], *, colour: bool = True
) -> str:
    """Boards of at most count secrets, and above them the rule that chose them.

    pairs: in hash order, which is the same in every run.
    """
    changed, same = choose_pairs(pairs, count)
    rule = (
        f"Boards, by hash order alone: secrets whose result changed ({len(changed)}), "
        f"others ({len(same)})."
    )
    return f"{rule}\n\n{paired_boards([*changed, *same], titles, colour=colour)}"
