"""Scores the doctor on runs with a planted cause: python research/doctor/score.py [--pack <folder>]

--pack keeps what plant.py trained: runs.jsonl.xz gets the metrics and settings that the doctor
reads, of both halves. What it had before has been seen, and counts as such. Without it,
docs/DOCTOR.md gets the tables of the kept runs.

The truth about a run is what was planted, whether it took or not. Whether it took is told by wins
alone. Training wins (first against last third of the steps, all games counted) and wins of
validation (start against end) rise or fall where they change by two standard errors.

- a healthy run took if one of them rose and none fell
- training secrets learnt by heart took if training wins rose and validation did not
- every other cause took if training wins did not rise, or validation fell
"""

from __future__ import annotations

import json
import lzma
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wordle_rl.evaluation.doctor import Curves, diagnose, is_healthy
from wordle_rl.evaluation.intervals import wilson
from wordle_rl.runs.config import flatten, read_config
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.paths import ROOT

KEPT = Path(__file__).with_name("runs.jsonl.xz")
PAGE = ROOT / "docs" / "DOCTOR.md"
HALVES = ("hidden", "seen")
TOLD = 4  # findings that the command tells
SETTINGS = (
    "optim.lr",
    "algorithm.beta",
    "model.max_tokens",
    "rollout.credit",
)  # that the doctor reads
# What was planted -> what the doctor should say. The second and later ones count as well.
SHOULD_SAY = {
    "healthy": ("healthy",),
    "rate_high": ("the rate is too high",),
    "rate_low": ("the rate is too low",),
    "noise": ("a step is smaller than its noise",),
    "no_spread": ("groups without spread",),
    "never_wins": ("a start that never wins",),
    "unread": ("answers cannot be read", "guesses are no words", "a start that never wins"),
    "cut": ("answers are cut",),
    "non_words": ("guesses are no words", "answers cannot be read"),
    "collapse": ("a favourite word", "reward rises while wins fall"),
    "hacking": ("reward rises while wins fall",),
    "sampler": ("sampler and trainer differ",),
    "kl": ("KL holds the policy",),
    "memorised": ("training secrets learnt by heart",),
    "few": ("too few steps",),
}
SILENT = "no known cause"
# Metrics that the doctor reads, beside the rewards of the parts.
METRICS = (
    *("step", "train/games", "train/win_rate", "train/format", "train/non_words"),
    *("train/most_common_later_guess", "val/win_rate", "val/win_rate_low", "val/win_rate_high"),
    *("policy/surprise", "policy/entropy", "policy/clipped", "policy/sampler_gap", "policy/kl"),
    *("groups/zero_spread", "turns/zero_spread", "tokens/per_answer", "tokens/cut", "grad_norm"),
    *("update/agreement", "update/guesses", "lr"),
)

# What plant.py chooses, so that it tells a plant and no illness.
_PLANNED = ("step", "train/games", "update/guesses", "lr")


class Planted(NamedTuple):
    """A run whose truth is known."""

    cause: str
    model: str
    half: str  # hidden or seen
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @property
    def said(self) -> list[str]:
        """What the doctor tells, the strongest first."""
        curves = Curves(self.rows)
        causes = [finding.cause for finding in diagnose(curves, self.settings)][:TOLD]
        return causes or ["healthy" if is_healthy(curves) else SILENT]

    @property
    def named(self) -> bool:
        return any(one in self.said for one in SHOULD_SAY[self.cause])

    @property
    def took(self) -> bool:
        """Whether what was planted took, by wins alone."""
        training, validation = wins_of(self.rows)
        match self.cause:
            case "healthy":
                return max(training, validation) >= 2 and min(training, validation) > -2
            case "memorised":
                return training >= 2 > validation
            case "few":
                return True
        return training < 2 or validation <= -2


def wins_of(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The changes of training wins and of validation, in standard errors."""
    pairs = [(row["train/win_rate"], row["train/games"]) for row in rows if row.get("train/games")]
    third = max(1, len(pairs) // 3)
    ends = [pairs[:third], pairs[-third:]]
    shares = [
        (sum(rate * games for rate, games in end), sum(games for _, games in end)) for end in ends
    ]
    return _change(*shares), Curves(rows).rise_of_validation


def _change(before: tuple[float, float], after: tuple[float, float]) -> float:
    """The change of a share in standard errors. Half a game more is won and lost: no error is 0."""
    shares = [((wins + 0.5) / (games + 1), games + 1) for wins, games in (before, after)]
    errors = [share * (1 - share) / games for share, games in shares]
    return (shares[1][0] - shares[0][0]) / math.sqrt(sum(errors))


# -- the kept runs --------------------------------------------------------------------------------


def pack(root: Path) -> None:
    """Keep the metrics of the runs in plant.py's folder, beside those of earlier ones."""
    entries = map(json.loads, (root / "key.jsonl").read_text().splitlines())
    dirs = {entry["planted"]: entry["run"] for entry in entries}  # two workers may meet at a run
    key = {run: plant for plant, run in dirs.items()}
    with lzma.open(KEPT, "rt", encoding="utf-8") as file:
        before = [{**json.loads(line), "half": "seen"} for line in file]
    lines = [json.dumps(run, separators=(",", ":")) for run in before]
    for place in sorted([*(root / "seen").iterdir(), *(root / "hidden").iterdir()]):
        name = key.get(place.name, place.name)
        runs = [path.parent for path in place.glob("*/summary.json")]
        unknown = place.parent.name == "hidden" and place.name not in key
        if unknown or not runs:
            print(f"left out: {place.parent.name}/{name}")
            continue
        model, cause, seed = re.fullmatch(r"(\w+?)_(\w+)_(\d+)", name).groups()
        record = {
            "cause": re.sub(r"\d+$", "", cause),
            "model": model,
            "seed": int(seed),
            "half": place.parent.name,
            "settings": {
                k: _number(v) for k, v in flatten(read_config(runs[0])).items() if k in SETTINGS
            },
            "rows": [_short(row) for row in RunFolder(runs[0]).log("metrics").read()],
        }
        lines.append(json.dumps(record, separators=(",", ":")))
    with lzma.open(KEPT, "wt", encoding="utf-8", preset=9) as file:
        file.write("".join(f"{line}\n" for line in sorted(lines)))
    print(f"{len(lines)} runs, {KEPT.stat().st_size:,} bytes")


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in row if name in METRICS or name.startswith("reward/")]
    return {k: float(f"{row[k]:.5g}") for k in names if isinstance(row[k], (int, float))}


def _number(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


def read_kept() -> list[Planted]:
    """The runs that --pack kept."""
    with lzma.open(KEPT, "rt", encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    return [Planted(*(run[name] for name in Planted._fields)) for run in runs]


# -- tables ---------------------------------------------------------------------------------------


def share(part: int, whole: int) -> str:
    """A share as "3 of 4 (30 to 95 %)", with Wilson's interval."""
    low, high = wilson(part, whole)
    return f"{part} of {whole} ({100 * low:.0f} to {100 * high:.0f} %)"


def alarmed(run: Planted) -> bool:
    return run.said[0] not in ("healthy", SILENT)


def summary_table(runs: Sequence[Planted]) -> list[str]:
    rows: list[tuple[str, Callable[[Planted], bool], Callable[[Planted], bool]]] = [
        ("healthy runs with an alarm", is_well, alarmed),
        ("of those whose wins rose", lambda run: is_well(run) and run.took, alarmed),
        ("healthy runs called healthy", is_well, lambda run: run.said == ["healthy"]),
        ("causes named", is_ill, lambda run: run.named),
        ("causes named first", is_ill, lambda run: run.said[0] in SHOULD_SAY[run.cause]),
        (
            "causes named, of the plants that took",
            lambda r: is_ill(r) and r.took,
            lambda r: r.named,
        ),
        ("failing runs called healthy", is_ill, lambda run: run.said == ["healthy"]),
    ]
    lines = ["| what | hidden half | seen half |", "| --- | --- | --- |"]
    for name, scope, test in rows:
        cells = [[test(run) for run in runs if run.half == half and scope(run)] for half in HALVES]
        lines.append(f"| {name} | {' | '.join(share(sum(one), len(one)) for one in cells)} |")
    return lines


def is_well(run: Planted) -> bool:
    return run.cause == "healthy"


def is_ill(run: Planted) -> bool:
    return run.cause not in ("healthy", "few")


def cause_table(runs: Sequence[Planted]) -> list[str]:
    lines = [
        "| planted | what should be said | hidden: named | seen: named | took (both) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for cause, words in SHOULD_SAY.items():
        group = [run for run in runs if run.cause == cause]
        halves = [[run.named for run in group if run.half == half] for half in HALVES]
        cells = " | ".join(share(sum(one), len(one)) for one in halves)
        count = f"{sum(run.took for run in group)} of {len(group)}"
        lines.append(f"| {cause} | {', or '.join(words)} | {cells} | {count} |")
    return lines


def confusion_table(runs: Sequence[Planted]) -> list[str]:
    """Rows: what was planted. Columns: what the doctor said first, by the same names."""
    names = {words[0]: cause for cause, words in SHOULD_SAY.items()} | {SILENT: "no cause"}
    counts = Counter((run.cause, names[run.said[0]]) for run in runs)
    columns = [name for name in names.values() if any(counts[cause, name] for cause in SHOULD_SAY)]
    lines = [f"| planted | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for cause in SHOULD_SAY:
        cells = [str(counts[cause, name] or "") for name in columns]
        lines.append(f"| {cause} | {' | '.join(cells)} |")
    return lines


class Threshold(NamedTuple):
    """A rule that calls a run ill by one number of one metric."""

    metric: str
    number: str  # of the metric: first, last, change or rise
    above: bool
    limit: float

    def alarms(self, run: Planted) -> bool:
        value = _numbers(run, self.metric).get(self.number, math.nan)
        return value > self.limit if self.above else value < self.limit


def _numbers(run: Planted, metric: str) -> dict[str, float]:
    curves = Curves(run.rows)
    first, last = curves.first(metric), curves.last(metric)
    rise = curves.rise(metric) if metric in curves else math.nan
    return {"first": first, "last": last, "change": last - first, "rise": rise}


def best_threshold(runs: Sequence[Planted]) -> Threshold:
    """The threshold with the most sensitivity less false alarms (Youden's J)."""
    metrics = [name for name in METRICS if name not in _PLANNED]
    best, top = None, -math.inf
    for metric in (*metrics, "reward/mean", "reward/std"):
        numbers = [(_numbers(run, metric), is_ill(run)) for run in runs]
        for number in ("first", "last", "change", "rise"):
            values = np.array([one[number] for one, _ in numbers])
            ill = np.array([one for _, one in numbers])
            levels = np.unique(values[np.isfinite(values)])
            for limit in (levels[1:] + levels[:-1]) / 2:
                for above in (True, False):
                    alarm = values > limit if above else values < limit
                    score = alarm[ill].mean() - alarm[~ill].mean()
                    if score > top:
                        best, top = Threshold(metric, number, above, float(limit)), score
    assert best is not None
    return best


def metric_table(runs: Sequence[Planted]) -> list[str]:
    subset = [run for run in runs if run.cause != "few"]
    rule = best_threshold([run for run in subset if run.half == "seen"])
    side = "above" if rule.above else "below"
    names = {
        "first": "mean of the first third of",
        "last": "mean of the last third of",
        "change": "change of",
        "rise": "change in standard errors of",
    }
    lines = [
        "| an alarm by | failing, hidden | healthy, hidden | failing, seen | healthy, seen |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, alarm in (
        (f"the {names[rule.number]} `{rule.metric}` {side} {rule.limit:.3g}", rule.alarms),
        ("the doctor", alarmed),
    ):
        cells = [
            [alarm(run) for run in subset if run.half == half and is_ill(run) == ill]
            for half in HALVES
            for ill in (True, False)
        ]
        lines.append(f"| {name} | {' | '.join(share(sum(one), len(one)) for one in cells)} |")
    return lines


TABLES = {
    "summary": summary_table,
    "causes": cause_table,
    "confusion": lambda runs: confusion_table([run for run in runs if run.half == "hidden"]),
    "metric": metric_table,
}


def render(page: str, runs: Sequence[Planted]) -> str:
    """The page with each table between its two comments."""
    for name, make in TABLES.items():
        begin, end = f"<!-- score: {name} -->", "<!-- end of score -->"
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        assert pattern.search(page), begin
        text = "\n".join([begin, *make(runs), end])
        page = pattern.sub(lambda _, text=text: text, page)
    return page


def main() -> None:
    if sys.argv[1:2] == ["--pack"]:
        pack(Path(sys.argv[2]))
    else:
        PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), read_kept()), encoding="utf-8")


if __name__ == "__main__":
    main()
