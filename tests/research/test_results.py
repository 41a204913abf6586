"""The pages show the numbers of results/, and each row agrees with its games."""

import csv
import json
import lzma
import re
from collections import Counter

import pytest
from scipy.stats import binomtest, sem

from results import render
from tests.helpers.commands import evaluation
from tests.helpers.played_games import played, summary_of
from wordle_rl.evaluation import record
from wordle_rl.runs.paths import ROOT

ROWS = record.read_rows(render.FOLDER)
PAGES = [ROOT / "README.md", ROOT / "docs" / "FINDINGS.md"]
WITH_GAMES = [row for row in ROWS if row["raw"].startswith("games/")]
# A share, or a number with decimals that is no part of a name, a setting, a version or a size.
_NUMBER = re.compile(
    r"(?<![\w.=/-])\d+(?:\.\d+)?(?= %(?! intervals))|(?<![\w.=/-])\d+\.\d+(?![\w.])"
)
_SIZE = re.compile(r"\d+(\.\d+)? (million|billion|GB|MB|s\b)")


def strip_markup(page: str) -> str:
    """A page without code, links' addresses and the parts that are rendered."""
    page = re.sub(r"<!-- results: .*?<!-- end of results -->", "", page, flags=re.S)
    page = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", page, flags=re.S)
    return _SIZE.sub("", page)


def play(name):
    with lzma.open(render.FOLDER / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_the_pages_are_as_the_rows_have_them():
    names = [path.name for path, text in render.render().items() if text != path.read_text()]
    assert not names, f"python results/render.py writes {names}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_number_of_a_page_is_without_a_row(path):
    numbers = {row[end] for row in ROWS for end in ("value", "low", "high")}
    assert not {*_NUMBER.findall(strip_markup(path.read_text()))} - numbers


def test_no_table_has_a_number_of_its_own():
    texts = {place: render.REFERENCE.sub("", text) for place, text in render.read_texts().items()}
    tables = [line for text in texts.values() for line in text.split("\n") if line[:1] == "|"]
    assert len(tables) > 100
    assert not [line for line in tables if _NUMBER.search(strip_markup(line))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_only_a_gain_that_excludes_0_is_bold(path):
    phrases = re.findall(r"\*\*([+-]?\d[^*]*)\*\*", path.read_text())
    gains = {render.show(row).strip("*") for row in ROWS if row["measure"] == "gain"}
    assert {*phrases} <= gains
    for text in phrases:
        low, high = map(float, re.findall(r"[+-]?\d+\.\d+", text)[1:])
        assert low > 0 or high < 0, text


def test_a_row_says_what_it_is():
    assert len(ROWS) > 400
    keys = Counter((row["id"], row["measure"]) for row in ROWS)
    assert not [key for key, count in keys.items() if count > 1]
    ids = {row["id"] for row in ROWS}
    for row in ROWS:
        assert set(row) == set(record.FIELDS), row
        assert (row["measure"] == "gain") == bool(row["against"]), row
        assert not row["against"] or row["against"] in ids, row
        if row["low"]:
            assert float(row["low"]) <= float(row["value"]) <= float(row["high"]), row
        source = row["raw"] or row["note"] or row["measure"] in ("reward", "times")
        assert source, f"{row['id']} has neither games nor a note"
        assert not row["raw"] or (render.FOLDER / row["raw"]).is_file(), row


def test_intervals_of_one_game_a_secret_are_wilsons():
    rows = [
        row
        for row in ROWS
        if row["measure"] == "wins" and row["low"] and row["secrets"].split(" ")[0] == row["games"]
    ]
    assert len(rows) > 50
    for row in rows:
        games, value = int(row["games"]), float(row["value"])
        counts = [n for n in range(games + 1) if f"{100 * n / games:.1f}" == f"{value:.1f}"]
        ends = [binomtest(wins, games).proportion_ci(method="wilson") for wins in counts]
        intervals = [f"{100 * low:.1f} {100 * high:.1f}" for low, high in ends]
        assert f"{row['low']} {row['high']}" in intervals, row


@pytest.mark.parametrize("row", WITH_GAMES, ids=lambda row: f"{row['id']} {row['measure']}")
def test_wins_guesses_and_gains_are_those_of_the_games(row):
    games = play(row["raw"])
    if row["measure"] == "wins":
        value = 100 * sum(game["won"] for game in games) / len(games)
        assert value == pytest.approx(float(row["value"]), abs=0.051)
    elif row["measure"] == "guesses":
        value = sum(len(game["guesses"]) + (not game["won"]) for game in games) / len(games)
        assert value == pytest.approx(float(row["value"]), abs=0.0051)
    elif row["measure"] == "non_words":  # or not to be read
        kinds = [kind for game in games for kind in game["kinds"]]
        value = 100 * (1 - kinds.count("accepted") / len(kinds))
        assert value == pytest.approx(float(row["value"]), abs=0.051)
    elif row["measure"] == "gain":
        [start] = {r["raw"] for r in ROWS if r["id"] == row["against"]}
        after, before = (Counter[str]() for _ in range(2))
        for counts, records in ((after, games), (before, play(start))):
            samples = len(records) // len({game["secret"] for game in records})
            for game in records:
                counts[game["secret"]] += 100 * game["won"] / samples
        gains = [after[secret] - before[secret] for secret in before]
        mean, half = sum(gains) / len(gains), 1.96 * sem(gains)
        numbers = [float(row[end]) for end in ("value", "low", "high")]
        assert [mean, mean - half, mean + half] == pytest.approx(numbers, abs=0.06)


def test_what_is_not_verified_has_its_stand_in_or_is_said_to_have_none():
    with (render.FOLDER / "checks" / "machines.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    page = " ".join((ROOT / "README.md").read_text().split())
    section = page.partition("## Not verified")[2]
    for row in rows:
        assert not row["stand_in"] or (ROOT / row["stand_in"]).is_file(), row
        assert (row["what"] in section) == (not row["verified"]), row
        assert bool(row["verified"]) == bool(row["machine"]), row
    assert [row["what"] for row in rows if not row["stand_in"]] == ["the Docker image", "Windows"]


def test_eval_records_its_numbers_and_games_once(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    line = f"player=random_consistent limit=20 compare=false output_dir={tmp_path / 'out'}"
    evaluation(f"{line} record=by_chance")()
    rows = {row["measure"]: row for row in record.read_rows(tmp_path / "results")}
    [raw] = {row["raw"] for row in rows.values()}
    with lzma.open(tmp_path / "results" / raw, "rt") as file:
        won = [json.loads(game)["won"] for game in file]
    assert len(won) == 20 and rows["wins"]["value"] == f"{5 * sum(won):.1f}"
    assert rows["wins"]["secrets"] == "20 test" and float(rows["guesses"]["low"]) > 2
    assert rows["wins"]["command"] == f"python eval.py {line}" and rows["wins"]["machine"]
    for name in ("by_chance", "By chance"):
        with pytest.raises(SystemExit):
            evaluation(f"{line} 'record={name}'")()
    assert len(record.read_rows(tmp_path / "results")) == len(rows)


def test_an_answer_that_is_no_word_or_not_to_be_read_counts_as_a_non_word(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    games = [played("crane", ["zzzzz", None, "slate", "crane"]), played("slate", ["slate"])]
    computing = {"precision": "bf16", "gpu": "NVIDIA H200"}
    record.record_result("mine", summary_of(games), games, command="", computing=computing)
    rows = {row["measure"]: row for row in record.read_rows(tmp_path)}
    assert (rows["non_words"]["value"], rows["readable"]["value"]) == ("40.0", "80.0")
    assert rows["wins"]["machine"] == "NVIDIA H200, bf16"


def test_a_gain_is_added_once_and_of_the_same_secrets_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(render, "FOLDER", tmp_path)
    start = [played("crane", ["slate"] * 6), played("slate", ["slate"]), played("crept", ["crept"])]
    end = [played(game.secret, [game.secret]) for game in start]
    for name, games in (("start", start), ("end", end), ("fewer", end[:2])):
        record.record_result(name, summary_of(games), games, command="", computing={})
    for _ in range(2):
        render.add_gain("end", "start")
    [row] = [row for row in record.read_rows(tmp_path) if row["measure"] == "gain"]
    assert (row["value"], row["against"]) == ("33.3", "start") and "33.3" in capsys.readouterr().out
    for name, partner in (("end", "fewer"), ("end", "strat")):
        with pytest.raises(ValueError, match=r"secrets|strat"):
            render.add_gain(name, partner)
