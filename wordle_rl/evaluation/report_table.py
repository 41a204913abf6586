"""The table of players at the end of a run and of eval.py: plain text, as wide as asked."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wordle_rl.evaluation.repetition import describe_common_guess, warn_of_repetition
from wordle_rl.game.players.greedy_entropy import WITH_LIST, WITHOUT_LIST
from wordle_rl.runs.untrusted import printable

Summary = Mapping[str, Any]  # from wordle_rl.evaluation.summary.summarise, or a summary.json

_NAME = 20  # columns of a player's name
_BAR = 60  # columns of the longest bar
_COLUMNS = {  # heading -> width
    "games": 5,
    "wins (95 %)": 18,
    "mean": 5,
    "lost={}": 10,
    "format": 6,
    "non-word": 8,
    "repeat": 6,
    "fits": 5,
    "bits": 5,
}
_LEGEND = (
    "wins, format, non-word, repeat, fits and bits in per cent. mean: guesses of won games. "
    "lost={}: mean guesses with a lost game as {}, and half its 95 % interval. format, non-word, "
    "repeat: turns with a readable guess, a non-word, an earlier guess. fits: guesses that ignore "
    "no clue. bits: expected information of the guesses, of the most that was possible."
)
_PLAYERS = {  # what a name means, below the table where it appears
    WITH_LIST: "knows which words are answers, and guesses any allowed word.",
    WITHOUT_LIST: "takes every allowed word for a possible secret.",
}
_SKILL = {  # heading -> width
    "fits ✓": 7,
    "fits -": 7,
    "fits x": 7,
    "words left": 11,
    "regret": 7,
    **{f"turn {number}": 6 for number in range(2, 7)},
}
_SKILL_LEGEND = (
    "fits ✓, -, x: guesses that ignore no clue of that kind, of those that had one. words left: "
    "expected number after a guess. regret: guesses beyond the best player's on the same secrets. "
    "turn n: guesses of that turn that ignore no clue."
)
_HABITS = {"out of time": 11, "openers": 8, "tokens": 8, "reward": 8, "most common guesses": 39}
_HABITS_LEGEND = (
    "out of time: games that ran out of it, which count as lost. openers: how many different first "
    "guesses there were, in per cent of the games. tokens: mean of an answer. reward: of a game."
)
_SHOWN_GUESSES = 3
_MOST_DEPTHS = 6
_DEPTH_LEGEND = "n given: wins in per cent, and games, of games that began after n guesses."
_MOST_PASSES = 4
_PASS_LEGEND = "pass@k: secrets of which one of k games or more is won, in per cent."
_DISCOVERY = {"plurals": 8, "answers": 8, "opener bits": 12, "opener rank": 12}
_DISCOVERY_LEGEND = (
    "plurals: guesses that end in s but not in ss, us, is or os. answers: guesses in the list of "
    "answers. Both in per cent of the legal guesses. opener bits: mean expected information of the "
    "first guess. opener rank: its mean rank by these bits among all allowed words. 1 is the best."
)


def report_table(summaries: Sequence[Summary], width: int = 100) -> str:
    """Four tables with a row per player, a legend for each, the rules, and a histogram.

    The lineage, the histogram and the reward by part are the first player's. width: columns that
    the text may take. Raises ValueError without summaries.
    """
    if not summaries:
        raise ValueError("a table needs one summary or more")
    splits = sorted({str(summary["split"]) for summary in summaries})
    names = [str(summary["player"]) for summary in summaries]
    if len(splits) > 1:
        names = [f"{name} ({s['split']})" for name, s in zip(names, summaries, strict=True)]
    lost_as = 1 + max(summary["rules"]["max_turns"] for summary in summaries)

    def table(widths: Mapping[str, int], cells: Callable[[Summary], list[str]]) -> list[str]:
        return _table(names, [cells(summary) for summary in summaries], widths, width)

    def fold(text: str) -> list[str]:
        return textwrap.wrap(text, width)

    scores = {heading.format(lost_as): columns for heading, columns in _COLUMNS.items()}
    lines = [f"secrets: {', '.join(splits)}", *table(scores, _cells), ""]
    lines += fold(_LEGEND.format(lost_as, lost_as))
    for rules in _rules(names, summaries):
        lines += fold(rules)
    shown = {summary["player"] for summary in summaries}
    lines += [f"{name}: {text}" for name, text in _PLAYERS.items() if name in shown]
    lines += fold(str(summaries[0].get("lineage", "")))
    lines += ["", *table(_SKILL, _skill_cells), "", *fold(_SKILL_LEGEND)]
    lines += ["", *table(_HABITS, _habits), "", *fold(_HABITS_LEGEND)]
    lines += [*fold(_reward_parts(names[0], summaries[0])), *describe_common_guess(summaries[0])]
    for name, summary in zip(names, summaries, strict=True):
        lines += warn_of_repetition(name, summary)
    lines += [*_depths(names, summaries, width), *_passes(names, summaries, width)]
    lines += ["", *table(_DISCOVERY, _discoveries), "", *fold(_DISCOVERY_LEGEND)]
    return printable("\n".join([*lines, "", *_histogram(names[0], summaries[0])]))


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], widths: Mapping[str, int], width: int
) -> list[str]:
    """A header, and a row of cells for each player.

    In a narrow terminal, columns shrink to what their cells need. Columns that do not fit even then
    get a table of their own below.
    """
    names = [name if len(name) <= _NAME else name[: _NAME - 1] + "…" for name in names]
    first, headings, columns = _NAME, list(widths), list(widths.values())
    if first + sum(columns) + len(columns) > width:
        first = max(map(len, ("player", *names)))
        columns = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    texts = [f"{name:<{first}}" for name in ("player", *names)]
    tables, table = [], texts
    for i, column in enumerate(columns):
        if len(table[0]) + 1 + column > width and table is not texts:
            tables.append(table)
            table = texts
        cells = (row[i] for row in (headings, *rows))
        table = [f"{text} {cell:>{column}}" for text, cell in zip(table, cells, strict=True)]
    lines = []
    for header, *others in [*tables, table]:
        lines += ["", header, "-" * len(header), *others]
    return lines[1:]


def _cells(summary: Summary) -> list[str]:
    low, high = _percent(summary["win_rate_low"]), _percent(summary["win_rate_high"])
    mean, upper = summary["mean_guesses_with_losses"], summary["mean_guesses_with_losses_high"]
    shares = ("format_compliance", "non_words", "repeats", "consistency", "bits_ratio")
    return [
        str(summary["games"]),
        f"{_percent(summary['win_rate'])} ({low}-{high})",
        "-" if summary["mean_guesses"] is None else f"{summary['mean_guesses']:.2f}",
        f"{mean:.2f}" + ("" if upper is None else f" ±{upper - mean:.2f}"),
        *(_percent(summary[key]) for key in shares),
    ]


def _skill_cells(summary: Summary) -> list[str]:
    shares = [summary[f"consistency_{kind}"] for kind in ("placed", "elsewhere", "absent")]
    turns = [summary["by_turn"].get(str(number), {}) for number in range(2, 7)]
    return [
        *map(_percent, shares),
        _number(summary["expected_remaining"], 1),
        _number(summary["regret"], 2),
        *(_percent(turn.get("consistency")) for turn in turns),
    ]


def _habits(summary: Summary) -> list[str]:
    guesses = summary["most_common_guesses"][:_SHOWN_GUESSES]
    return [
        str(summary.get("out_of_time", 0)),  # earlier versions lack this key and the next three
        _percent(summary.get("distinct_openers")),
        _number(summary.get("tokens_per_answer") or None, 1),
        _number(summary.get("reward"), 2),
        ", ".join(f"{guess} {count}" for guess, count in guesses) or "-",
    ]


def _discoveries(summary: Summary) -> list[str]:  # earlier versions lack them
    return [
        _percent(summary.get("plurals")),
        _percent(summary.get("answer_guesses")),
        _number(summary.get("opener_bits"), 2),
        _number(summary.get("opener_rank"), 1),
    ]


def _depths(names: Sequence[str], summaries: Sequence[Summary], width: int) -> list[str]:
    """Wins by the number of given guesses; nothing if no game had any."""
    tables: list[Mapping[str, Any]] = [summary.get("by_depth", {}) for summary in summaries]
    depths = sorted({int(depth) for table in tables for depth in table})[:_MOST_DEPTHS]
    if not depths:
        return []
    widths = {f"{depth} given": 12 for depth in depths}
    rows = []
    for table in tables:
        found = [table.get(str(depth)) for depth in depths]
        rows.append(
            ["-" if f is None else f"{_percent(f['win_rate'])} ({f['games']})" for f in found]
        )
    return ["", *_table(names, rows, widths, width), "", _DEPTH_LEGEND]


def _passes(names: Sequence[str], summaries: Sequence[Summary], width: int) -> list[str]:
    """pass@k of players with several games on each secret, beside the wins of the others."""
    numbers = sorted({int(k) for summary in summaries for k in summary.get("pass_at", {})})
    if not numbers:
        return []
    last = len(numbers) - 1
    places = {round(i * last / (_MOST_PASSES - 1)) for i in range(_MOST_PASSES)}
    numbers = [numbers[place] for place in sorted(places)]
    widths = {f"pass@{k} (95 %)": 18 for k in numbers}
    rows = []
    for summary in summaries:
        once = [summary["win_rate"], summary["win_rate_low"], summary["win_rate_high"]]
        found = {"1": once} | {
            k: [value["pass"], value["low"], value["high"]]
            for k, value in summary.get("pass_at", {}).items()
        }
        shares = [[_percent(share) for share in found.get(str(k), ())] for k in numbers]
        rows.append([f"{s[0]} ({s[1]}-{s[2]})" if s else "-" for s in shares])
    return ["", *_table(names, rows, widths, width), "", _PASS_LEGEND]


def _reward_parts(name: str, summary: Summary) -> str:
    parts: Mapping[str, float] = summary.get("reward_parts", {})
    told = ", ".join(f"{part} {value:.2f}" for part, value in parts.items())
    return f"{name}'s reward by part: {told}" if parts else ""


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _rules(names: Sequence[str], summaries: Sequence[Summary]) -> list[str]:
    """One line if all players had the same rules, else one per player."""
    told = [
        f"rules: {s['rules']['max_turns']} turns, a non-word: {s['rules']['invalid']}, "
        f"no readable guess: {s['rules']['unparsable']}, "
        f"hard mode: {'on' if s['rules']['hard_mode'] else 'off'}"
        for s in summaries
    ]
    if len(set(told)) == 1:
        return [told[0]]
    return [f"{name}: {line}" for name, line in zip(names, told, strict=True)]


def _histogram(name: str, summary: Summary) -> list[str]:
    counts: Mapping[str, int] = summary["histogram"]
    most = max(max(counts.values()), 1)
    lines = [f"{name}: games by number of guesses"]
    for label, count in counts.items():
        # A count above zero has at least a thin bar.
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        lines.append(f"{label:>6} {bar} {count}" if bar else f"{label:>6} {count}")
    return lines
