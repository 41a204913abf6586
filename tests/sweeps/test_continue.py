"""A study continues from its committed files, and its figures come from its games."""

from __future__ import annotations

import csv
import io
import json
import lzma
import shutil
from pathlib import Path

import pytest

from tests.helpers.studies import plan_of, states, stored, work
from wordle_rl import study
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.untrusted import FolderError
from wordle_rl.sweeps.games import FILE, pack_games, read_games
from wordle_rl.sweeps.reading import read_study
from wordle_rl.sweeps.study_loop import run_study

NODE = {
    "params": {"seed": "choice(0, 1, 2)"},
    "arms": {"low": ["x=0.1"], "high, too": ["x=0.9"]},
    "default": {"arm": "low"},
    "question": "Is x good?",
    "confirm_seeds": [7, 8],
}
FAKE = '{"secrets": 20, "by_seed": 0.01}'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE", FAKE)
        work(root, **NODE)
    study.write_report(root / "study")
    return root


def copy_files(root: Path, to: Path) -> Path:
    """The files of a study that a repository keeps, in another place."""
    (to / "study").mkdir()
    for path in (root / "study").iterdir():
        if path.name != "study.db" and path.is_file():
            shutil.copy(path, to / "study")
    return to


def test_a_study_continues_without_its_database_and_its_runs(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"fail": "nothing may run again"}')
    here = copy_files(root, tmp_path)
    said = work(here, **NODE)
    assert said[0].startswith("6 finished trials come from ")
    assert not any("starts in" in line for line in said)
    assert states(stored(here)) == ["COMPLETE"] * 6
    for name in ("study", "study-confirm"):
        pairs = zip(stored(root, name).trials, stored(here, name).trials, strict=True)
        assert all(a.params == b.params and a.value == b.value for a, b in pairs)
    before = {p.name: p.read_bytes() for p in (root / "study").iterdir() if p.suffix != ".db"}
    study.write_report(here / "study")
    for name in ("results.csv", FILE, "effects.json", "README.md"):
        assert (here / "study" / name).read_bytes() == before[name], name


def test_only_the_missing_trials_run(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", FAKE)
    here = copy_files(root, tmp_path)
    lines = (here / "study" / "results.csv").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("2,search", "5,search"))]
    (here / "study" / "results.csv").write_text("".join(kept))
    said = work(here, **NODE)
    assert said[0].startswith("4 finished trials come from ")
    started = [line for line in said if "starts in" in line]
    assert sum("arm=" in line and "confirm" not in line for line in started) == 2
    known = read_games(root / "study")
    study.write_report(here / "study")
    again = read_games(here / "study")
    by_arm = [{(g.arm, g.seed, g.step, g.secret, g.guesses) for trial in games.values()
               for g in trial} for games in (known, again)]  # fmt: skip
    assert by_arm[0] == by_arm[1]


@pytest.mark.slow
def test_a_sampled_study_continues_with_its_next_trial(tmp_path):
    node = {"params": {"x": "interval(0.0, 1.0)"}, "n_trials": 3,
            "sampler": {"name": "tpe", "startup_trials": 2}}  # fmt: skip
    work(tmp_path, **node)
    study.write_report(tmp_path / "study")
    there = tmp_path / "there"
    there.mkdir()
    here = copy_files(tmp_path, there)
    work(here, **{**node, "n_trials": 5})
    work(tmp_path, **{**node, "n_trials": 5})
    numbers = [[t.params["x"] for t in stored(place).trials] for place in (tmp_path, here)]
    assert numbers[0] == numbers[1] and len(numbers[0]) == 5


def test_results_of_another_study_are_left_alone(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", FAKE)
    here = copy_files(root, tmp_path)
    said = work(here, **{**NODE, "params": {"seed": "choice(0, 1)"}, "confirm_seeds": []})
    assert not any("come from" in line for line in said)
    assert sum("starts in" in line for line in said) == 4


def test_the_games_hold_all_that_a_script_needs(root):
    packed = (root / "study" / FILE).read_bytes()
    rows = list(csv.DictReader(io.StringIO(lzma.decompress(packed).decode())))
    assert {row["arm"] for row in rows if row["round"] == "search"} == {"low", "high, too"}
    assert {row["step"] for row in rows} == {"4"}, "the first step of a run that has none at 0"
    assert len(rows) == (6 + 4) * 20

    def wins(arm: str, seed: str) -> float:
        own = [r for r in rows if (r["arm"], r["seed"], r["round"]) == (arm, seed, "search")]
        return sum(r["guesses"].split()[-1] == r["secret"] for r in own) / len(own)

    by_hand = [100 * (wins("high, too", str(s)) - wins("low", str(s))) for s in range(3)]
    about = json.loads((root / "study" / "effects.json").read_text())
    assert about["effects"][0]["name"] == "high, too against low"
    assert about["effects"][0]["difference"] == pytest.approx(sum(by_hand) / 3, abs=1e-8)
    assert pack_games(read_games(root / "study")) == packed
    assert {r["guesses"] for r in rows if r["guesses"].split()[-1] != r["secret"]} == {
        "crane crane slate zzzzz! - slate"
    }


@pytest.mark.slow
def test_recompute_makes_the_page_from_the_files_alone(root, tmp_path):
    here = copy_files(root, tmp_path)
    page = (here / "study" / "README.md").read_text()
    (here / "study" / "effects.json").unlink()
    assert study.main([str(here / "study"), "--recompute"]) == 0
    assert (here / "study" / "README.md").read_text() == page
    games = lzma.decompress((here / "study" / FILE).read_bytes()).decode()
    games = games.replace(" word5\n", " tones\n")  # which only one arm had won
    (here / "study" / FILE).write_bytes(lzma.compress(games.encode()))
    study.main([str(here / "study"), "--recompute"])
    assert (here / "study" / "README.md").read_text() != page, "its effects come from the games"


def test_a_table_without_a_column_of_the_study_is_one_line(root, tmp_path):
    here = copy_files(root, tmp_path)
    table = here / "study" / "results.csv"
    table.write_text(table.read_text().replace("seed", "sead", 1))
    with pytest.raises(FolderError, match=r"results.csv: has no column seed, which the study"):
        read_study(here / "study")


@pytest.mark.parametrize("content", [b"no archive", lzma.compress(b"a,b\n1,2\n"), b""])
def test_a_damaged_table_of_games_is_one_line(root, tmp_path, content):
    here = copy_files(root, tmp_path)
    (here / "study" / FILE).write_bytes(content)
    with pytest.raises(FolderError, match=r"games.csv.xz: not a table of games"):
        read_study(here / "study")


@pytest.mark.slow
def test_the_index_has_question_effect_verdict_and_cost(root, tmp_path):
    here = copy_files(root, tmp_path)
    study.write_report(here / "study", listed=True)
    [row] = [line for line in (here / "README.md").read_text().splitlines() if "| [study]" in line]
    _, _, question, effect, verdict, cost, _ = (cell.strip() for cell in row.split("|"))
    assert question == "Is x good?" and verdict == "better; 1 of 1 others decided"
    assert effect.startswith("high, too against low: +40.0 points (")
    assert cost.startswith("10 trials, ") and cost.endswith(" minutes")


@pytest.mark.slow
def test_a_study_that_finds_less_than_it_asks_about_is_refused(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"secrets": 20}')
    (tmp_path / "pilot").symlink_to(root / "study")
    node = {"params": {"seed": "choice(0, 1)"}, "arms": {"a": [], "b": []}, "confirm_seeds": [],
            "default": {"arm": "a"}}  # fmt: skip
    analysis = {"pilot": "pilot", "effect": 0.5}
    with pytest.raises(ConfigError, match=r"asks about a difference of 0.5 points, and 2 seeds"):
        run_study(plan_of(tmp_path, **node, analysis=analysis), lambda line: None)
    assert not (tmp_path / "trials").exists()
    said = work(tmp_path, **node, analysis={**analysis, "underpowered": True})
    assert "so that is not enough" in said[0]
    assert sum("starts in" in line for line in said) == 4
    again = work(tmp_path, **node, analysis=analysis)
    assert not any("resolution" in line for line in again), "it started, so it may end"


def test_a_pilot_that_did_not_run_is_said(tmp_path):
    node = {"params": {"seed": "choice(0, 1)"}, "arms": {"a": []}}
    with pytest.raises(ConfigError, match=r"analysis.pilot=nose: neither a study .* noise, "):
        run_study(plan_of(tmp_path, **node, analysis={"pilot": "nose"}), lambda line: None)
    said = work(tmp_path, **node, analysis={"pilot": "noise", "effect": 0.5})
    assert said[0].startswith("what this study can find is not known: ")


def test_a_state_that_no_trial_has_is_one_line(root, tmp_path):
    here = copy_files(root, tmp_path)
    table = here / "study" / "results.csv"
    table.write_text(table.read_text().replace(",complete,", ",done,", 1))
    with pytest.raises(FolderError, match=r"a trial's state is complete, pruned, .*, not 'done'"):
        study.write_report(here / "study", recompute=True)


def test_a_table_that_is_cut_off_is_one_line(root, tmp_path):
    here = copy_files(root, tmp_path)
    table = here / "study" / "results.csv"
    table.write_text(table.read_text().rstrip("\n").rpartition(",")[0])
    with pytest.raises(FolderError, match=r"results.csv: the line of trial '3' is cut off"):
        study.write_report(here / "study", recompute=True)


def test_a_page_made_from_games_is_not_recomputed_without_them(root, tmp_path):
    here = copy_files(root, tmp_path) / "study"
    page = (here / "README.md").read_text()
    (here / FILE).unlink()
    with pytest.raises(ValueError, match=r"games.csv.xz: missing"):
        study.write_report(here, recompute=True)
    assert (here / "README.md").read_text() == page


def test_a_comparison_of_no_arm_is_said(tmp_path):
    said = work(tmp_path, params={"seed": "choice(0, 1)"}, arms={"a": [], "b": []},
                default={"arm": "a"}, analysis={"comparisons": {"one": ["c", "a"]}})  # fmt: skip
    assert said[0] == "no comparison 'one': it names an arm that is not among a; b"
