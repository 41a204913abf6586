"""Writes the numbers of results/ into README.md, docs/ and conf/: python results/render.py

tables.md has the text of each place. In it {id.measure} is a number with its interval,
{id.measure:percent} the same with a sign, {id.measure:value} the number and {id.measure:interval}
the interval alone. A gain is bold where its interval excludes 0. {not verified} is the list of
checks/machines.csv.

    python results/render.py gain demo_seed0 demo_start

adds the gain of one result over another on the same secrets, from the games of both.
"""

import csv
import json
import lzma
import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import numpy as np

from wordle_rl.evaluation.intervals import Z95, standard_error
from wordle_rl.evaluation.record import Row, append_rows, read_rows

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
REFERENCE = re.compile(r"\{(\w+)\.(\w+)(:\w+)?\}")
_RESULT = re.compile(r"^# Result: .*\n(?:# .*\n)*", re.M)  # of an experiment's head
_COLUMNS = 100


def find_rows() -> dict[tuple[str, str], Row]:
    """(id, measure) -> its row."""
    return {(row["id"], row["measure"]): row for row in read_rows(FOLDER)}


def show(row: Row, form: str = "") -> str:
    """A number as a page shows it. form: value, interval, percent or both."""
    gain = row["measure"] == "gain"

    def sign(text: str) -> str:
        return f"+{text}" if gain and float(text) > 0 else text

    number = sign(row["value"])
    if form == "percent":
        number += " %"
    if form == "interval":
        return f"{sign(row['low'])} to {sign(row['high'])}"
    if row["low"] and form != "value":
        number += f" ({sign(row['low'])} to {sign(row['high'])})"
    decided = gain and row["low"] and float(row["low"]) * float(row["high"]) > 0
    return f"**{number}**" if decided else number


def read_texts() -> dict[str, str]:
    """Place -> its text with references. A place is `<page> <name of a part>`, or a YAML file."""
    _, *parts = re.split(
        r"^## (.+)\n", (FOLDER / "tables.md").read_text(encoding="utf-8"), flags=re.M
    )
    return {place: text.strip() for place, text in zip(parts[::2], parts[1::2], strict=True)}


def fill(text: str, rows: dict[tuple[str, str], Row]) -> str:
    """The text with its numbers. Raises KeyError for one that no row has."""
    return REFERENCE.sub(lambda m: show(rows[m[1], m[2]], (m[3] or "")[1:]), text)


def name_unverified() -> str:
    """What no run has shown yet, and what of it no test on a CPU stands in for."""
    with (FOLDER / "checks" / "machines.csv").open(encoding="utf-8", newline="") as file:
        open_rows = [row for row in csv.DictReader(file) if not row["verified"]]
    gaps = [row["what"] for row in open_rows if not row["stand_in"]]
    text = "; ".join(row["what"] for row in open_rows)
    return f"{text}. A CPU tests a smaller stand-in for each but {' and '.join(gaps)}."


def put(page: str, place: str, text: str) -> str:
    """The page with this text in this place."""
    path, _, name = place.partition(" ")
    if path.endswith(".yaml"):
        comment = textwrap.fill(
            "Result: " + text.replace("**", ""), _COLUMNS - 2, break_on_hyphens=False
        )
        text = "".join(f"# {line}\n" for line in comment.split("\n"))
        return _RESULT.sub(lambda _: text, page, count=1)
    begin, end = f"<!-- results: {name} -->", "<!-- end of results -->"
    head, marker, rest = page.partition(begin)
    if not marker or end not in rest:
        raise ValueError(f"{path} must have the lines {begin.strip()} and {end.strip()}")
    paragraphs = [_wrap(part) for part in text.split("\n\n")]
    return f"{head}{begin}\n\n" + "\n\n".join(paragraphs) + f"\n\n{end}" + rest.partition(end)[2]


def _wrap(part: str) -> str:
    if part[0] in "|<`->":
        return part
    return textwrap.fill(part, _COLUMNS, break_on_hyphens=False, break_long_words=False)


def render() -> dict[Path, str]:
    """Page -> its text as the rows have it."""
    rows, pages = find_rows(), {}
    for place, text in read_texts().items():
        path = ROOT / place.partition(" ")[0]
        page = pages.get(path) or path.read_text(encoding="utf-8")
        template = text.replace("{not verified}", name_unverified())
        pages[path] = put(page, place, fill(template, rows))
    return pages


def read_wins(raw: str) -> dict[str, float]:
    """Secret -> share of its games that were won. raw: a file of results/."""
    wins = defaultdict(list)
    with lzma.open(FOLDER / raw, "rt", encoding="utf-8") as file:
        for game in map(json.loads, file):
            wins[game["secret"]].append(float(game["won"]))
    return {secret: float(np.mean(games)) for secret, games in wins.items()}


def compute_gain(raw: str, start: str) -> tuple[float, float, float]:
    """Mean gain in points of wins, and its 95 % interval. Raises ValueError for other secrets."""
    after, before = read_wins(raw), read_wins(start)
    if set(after) != set(before) or len(after) < 2:
        raise ValueError(f"{raw} and {start} must have the same secrets, two or more")
    gains = [100 * (after[secret] - before[secret]) for secret in before]
    mean, half = float(np.mean(gains)), Z95 * (standard_error(gains, [*before]) or 0.0)
    return mean, mean - half, mean + half


def add_gain(name: str, start: str) -> None:
    """Add a row for the gain of one recorded result over another, unless it is there already.

    Raises ValueError for results without games, or of other secrets.
    """
    rows = [row for row in read_rows(FOLDER) if row["measure"] in ("wins", "gain")]
    raw = {row["id"]: row for row in rows if row["measure"] == "wins" and row["raw"]}
    for result in (name, start):
        if result not in raw:
            names = ", ".join(sorted(raw))
            raise ValueError(f"{result} is no result with games; these are: {names}")
    numbers = compute_gain(raw[name]["raw"], raw[start]["raw"])
    ends = dict(zip(("value", "low", "high"), (f"{x:.1f}" for x in numbers), strict=True))
    row = {**raw[name], "measure": "gain", **ends, "against": start}
    if not any((r["id"], r["against"]) == (name, start) for r in rows):
        append_rows(FOLDER / "recorded.csv", [row])
    print(f"{name} against {start}: {show(row)} points, in results/")


if __name__ == "__main__":
    if sys.argv[1:2] == ["gain"]:
        if len(sys.argv) != 4:
            sys.exit("usage: python results/render.py gain <result> <the start's result>")
        try:
            add_gain(*sys.argv[2:])
        except ValueError as error:
            sys.exit(f"error: {error}")
    else:
        for path, text in render().items():
            path.write_text(text, encoding="utf-8")
