"""A study continues from the files that a repository keeps, without its runs."""

import io
import lzma
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.helpers.studies import states, stored, work
from wordle_rl.runs.files import read_json, write_json
from wordle_rl.sweeps import run

pytestmark = pytest.mark.slow

NODE = {
    "params": {"seed": "choice(0, 1)"},
    "arms": {"low": ["x=0.1"], "high, too": ["x=0.9"]},
    "default": {"arm": "low"},
    "question": "Is x good?",
    "confirm_seeds": [7],
    "analysis": {"measure": "wins"},
}
FAKE = '{"secrets": 20, "by_seed": 0.01}'
FILES = ("study.json", "games.csv.xz")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE", FAKE)
        work(root, **NODE)
    return root


def copy_files(root: Path, target: Path) -> Path:
    """The files of a study that a repository keeps, in another place."""
    (target / "study").mkdir(parents=True)
    for path in (root / "study").iterdir():
        if path.name in FILES:
            shutil.copy(path, target / "study")
    return target


def read_files(root: Path) -> dict[str, bytes]:
    return {name: (root / "study" / name).read_bytes() for name in FILES}


def test_a_finished_study_trains_nothing_again_here_or_elsewhere(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"fail": "nothing may run again"}')
    before = read_files(root)
    for place in (root, copy_files(root, tmp_path)):
        lines = work(place, **NODE)
        assert not any("starts in" in line for line in lines)
        assert states(stored(place)) == ["complete"] * 4
        assert read_files(place) == before
    assert lines[0].startswith("4 finished trials come from ")


def test_only_the_missing_trials_run_elsewhere(root, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", FAKE)
    copy = copy_files(root, tmp_path)
    record = read_json(copy / "study" / "study.json")
    record["trials"] = [
        t for t in record["trials"] if t["round"] != "search" or t["trial"] not in (1, 2)
    ]
    write_json(copy / "study" / "study.json", record)
    lines = work(copy, **NODE)
    assert lines[0].startswith("2 finished trials come from ")
    starts = [line for line in lines if "starts in" in line and "confirm" not in line]
    assert [line.split("  ")[1] for line in starts] == ["arm=high, too seed=0", "arm=low seed=1"]
    before, after = (
        {*games.drop(columns="trial").itertuples(index=False, name=None)}
        for games in map(read_games, (root, copy))
    )
    assert before == after


def test_a_sampled_study_may_grow_and_draws_the_same_points_elsewhere(tmp_path):
    sampler = {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 2}
    node = {"params": {"x": "interval(0.0, 1.0)"}, "n_trials": 3, "sampler": sampler}
    work(tmp_path / "a", **node)
    copy = copy_files(tmp_path / "a", tmp_path / "b")
    for place in (tmp_path / "a", copy):
        work(place, **{**node, "n_trials": 5})
    work(tmp_path / "at once", **{**node, "n_trials": 5})
    drawn = [[trial["x"] for trial in stored(tmp_path / p)] for p in ("a", "b", "at once")]
    assert drawn[0] == drawn[1] == drawn[2] and len(set(drawn[0])) == 5


def read_games(root: Path) -> pd.DataFrame:
    data = (root / "study" / "games.csv.xz").read_bytes()
    return pd.read_csv(io.StringIO(lzma.decompress(data).decode()), dtype={"arm": str})


def test_a_study_ends_with_its_arms_and_the_shipped_verdicts_beside_its_own(
    root, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    copy_files(root, tmp_path / "sweeps")
    run.print_verdicts(root / "study")
    lines = capsys.readouterr().out.strip().splitlines()
    text = " ".join(lines)
    assert text.count("high, too against low: +40.0 points") == text.count(": undecided") == 2
    assert "As shipped, high, too against low" in text
    run.print_verdicts(tmp_path / "sweeps" / "study")
    assert "shipped" not in capsys.readouterr().out


def test_a_point_that_a_sampler_draws_again_is_played_once(tmp_path):
    sampler = {"_target_": "optuna.samplers.TPESampler", "seed": 0, "n_startup_trials": 2}
    params = {"x": "choice(0.1, 0.9)", "seed": "choice(0, 1)"}
    node = {"params": params, "n_trials": 6, "sampler": sampler}
    lines = work(tmp_path, **node)
    points = [(trial["x"], trial["seed"]) for trial in stored(tmp_path)]
    assert sorted(points) == [(0.1, 0), (0.1, 1), (0.9, 0), (0.9, 1)]
    assert sum("starts in" in line for line in lines) == 4
    assert not any("starts in" in line for line in work(tmp_path, **node))
