"""What is printed of players at the end of a run and of eval.py: results, skill and change."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from wordle_rl.evaluation.boards import tabulate
from wordle_rl.evaluation.habits import warn_of_context, warn_of_repetition
from wordle_rl.evaluation.intervals import Z95, standard_error
from wordle_rl.game.players import MEANINGS

Summary = Mapping[str, Any]  # from wordle_rl.evaluation.summary.summarise, or a summary.json
_Columns = Mapping[str, Callable[[Summary], str]]  # heading -> cell

_BAR = 60  # columns of the longest bar
_NAME = 19  # columns of a player's name where a table needs more than there are
_RESULTS_LEGEND = (
    "wins, non-words and repeats (of all turns) in per cent. guesses: mean, a lost game as "
    "{lost}. regret: guesses beyond the best player's on the same secrets."
)
_SKILL_LEGEND = (
    "In per cent: readable (of all turns), fits (guesses that ignore no clue; then by kind of "
    "clue), bits (expected information, of the most that was possible), openers (different ones, "
    "of all games). left: expected number of words after a guess. opener: its mean bits."
)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(share: float, low: float, high: float) -> str:
    return f"{_percent(share)} ({_percent(low)}-{_percent(high)})"


def _share(key: str) -> Callable[[Summary], str]:
    return lambda summary: _percent(summary.get(key))


def _guesses(summary: Summary) -> str:
    mean, upper = summary["mean_guesses_with_losses"], summary["mean_guesses_with_losses_high"]
    return _number(mean) + ("" if upper is None else f" ±{upper - mean:.2f}")


_RESULTS: _Columns = {
    "games": lambda summary: str(summary["games"]),
    "wins (95 %)": lambda summary: _interval(
        summary["win_rate"], summary["win_rate_low"], summary["win_rate_high"]
    ),
    "guesses": _guesses,
    "non-words": _share("non_words"),
    "repeats": _share("repeats"),
    "regret": lambda summary: _number(summary.get("regret")),
}
_SKILL: _Columns = {
    "readable": _share("format_compliance"),
    "fits": _share("consistency"),
    "✓": _share("consistency_placed"),
    "-": _share("consistency_elsewhere"),
    "x": _share("consistency_absent"),
    "bits": _share("bits_ratio"),
    "left": lambda summary: _number(summary["expected_remaining"], 1),
    "opener": lambda summary: _number(summary["opener_bits"]),
    "openers": _share("distinct_openers"),
}


def report_table(
    summaries: Sequence[Summary], width: int = 100, solvers: Sequence[Summary] = ()
) -> str:
    """Results and skill with a row per player, what the words mean, the rules, and a histogram.

    The lineage and the histogram are the first player's. width: columns that the text may take, 80
    or more. solvers: rows for the results alone.
    """
    everyone = [*summaries, *solvers]
    first, names = summaries[0], [str(summary["player"]) for summary in everyone]

    def fold(*texts: str) -> str:
        return "\n".join(line for text in texts for line in wrap(text, width))

    notes = [_describe_rules(first)]
    notes += [f"{name}: {text}." for name, text in MEANINGS.items() if name in names]
    if (decoder := first.get("decoder")) in names:
        notes.append(f"{decoder}: guesses at random what the model's grammar allows.")
    notes += [first["lineage"]] if "lineage" in first else []
    pairs = [*zip(names, summaries, strict=False)]
    habits = [
        line for pair in pairs for line in (*_describe_starts(*pair), *warn_of_repetition(*pair))
    ]
    for name, record in pairs:
        habits += warn_of_context(name, record.get("out_of_context", 0), record["games"])
    lost_as = 1 + max(summary["rules"]["max_turns"] for summary in summaries)
    return "\n\n".join(
        [
            ", ".join(filter(None, (f"secrets: {first['split']}", first.get("drawn"))))
            + f"\n{fold(_RESULTS_LEGEND.format(lost=lost_as))}",
            _table(everyone, _RESULTS, width),
            fold(*notes),
            fold(_SKILL_LEGEND, *habits),
            _table(summaries, _SKILL, width),
            _histogram(names[0], first),
        ]
    )


def _table(summaries: Sequence[Summary], columns: _Columns, width: int) -> str:
    rows = [[str(one["player"]), *(cell(one) for cell in columns.values())] for one in summaries]
    widths = [max(map(len, column)) for column in zip(["player", *columns], *rows, strict=True)]
    if tight := sum(widths) + 2 * len(columns) > width:  # long names break behind an underscore
        for row in rows:
            lines = wrap(row[0].replace("_", "_ "), _NAME, break_on_hyphens=False)
            row[0] = "\n".join(lines).replace("_ ", "_")
    return tabulate(["player", *columns], rows, width, no_wrap=True, gap=1 if tight else 2)


def _describe_rules(summary: Summary) -> str:
    rules = summary["rules"]
    return (
        f"rules: {rules['max_turns']} turns, a non-word: {rules['invalid']}, no readable guess: "
        f"{rules['unparsable']}, hard mode: {'on' if rules['hard_mode'] else 'off'}"
    )


def _describe_starts(name: str, summary: Summary) -> list[str]:
    """Wins by the number of given guesses, and pass@k, where games have them."""
    lists = {
        "wins in per cent (and games) after given guesses": [
            f"{n} given {_percent(entry['win_rate'])} ({entry['games']})"
            for n, entry in summary.get("by_depth", {}).items()
        ],
        "secrets won in at least one of k games": [
            f"pass@{k} {_interval(entry['pass'], entry['low'], entry['high'])}"
            for k, entry in summary.get("pass_at", {}).items()
        ],
    }
    return [f"{name}, {title}: {', '.join(parts)}" for title, parts in lists.items() if parts]


def _histogram(name: str, summary: Summary) -> str:
    counts: Mapping[str, int] = summary["histogram"]
    most = max(max(counts.values()), 1)
    lines = [f"{name}: games by number of guesses"]
    for label, count in counts.items():
        # A count above zero has at least a thin bar.
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        lines.append(" ".join(filter(None, (f"{label:>6}", bar, str(count)))))
    return "\n".join(lines)


def measure_change(secrets: Sequence[str], won: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """The gain in wins as a share, its interval, and how many were won only before or only after.

    won: of each secret, whether its game before and its game after was. They are taken as a pair.
    """
    gains = [float(after) - float(before) for before, after in won]
    error, gain = standard_error(gains, secrets), sum(gains) / len(gains)
    low, high = (None if error is None else gain + side * Z95 * error for side in (-1, 1))
    counts = {"only_before": gains.count(-1.0), "only_after": gains.count(1.0)}
    return {"gain": gain, "gain_low": low, "gain_high": high, **counts}


def describe_change(summary: Summary) -> list[str]:
    """What became of the start, in a few lines. summary: of a run, with the entry `change`."""
    change, start = summary["change"], summary["start"]
    gain, low, high = (change[f"gain{end}"] for end in ("", "_low", "_high"))
    interval = "" if low is None else f" (95 %: {100 * low:+.1f} to {100 * high:+.1f})"
    lines = [
        f"Gain in wins: {100 * gain:+.1f} points{interval}, {_percent(start['win_rate'])} -> "
        f"{_percent(summary['win_rate'])} % of {summary['games']} {summary['split']} secrets, "
        f"{summary['drawn']}.",
        f"{change['only_after']} secrets were won only after training and "
        f"{change['only_before']} only before.",
    ]
    if (opener := change.get("old_opener")) is not None:
        rate = change["win_rate_old_opener"]
        lines.append(
            f"With {opener.upper()}, the first guess before training, it wins {_percent(rate)} "
            f"%: {100 * (summary['win_rate'] - rate):+.1f} points are the new first guess alone."
        )
    return lines
