"""The page of a study: its tables, its picture, and what a person wrote."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.helpers.studies import stored, work
from wordle_rl.__main__ import run
from wordle_rl.runs.figures import MOST_BANDS
from wordle_rl.sweeps.analysis import Study, estimate_importance, read_study
from wordle_rl.sweeps.page import BEGIN, END, UNWRITTEN, list_arms, write_study
from wordle_rl.sweeps.pictures import draw_study, find_teacher
from wordle_rl.sweeps.progress import format_mean
from wordle_rl.sweeps.records import read_trials
from wordle_rl.sweeps.space import parse_params

NODE = {
    "params": {"x": "choice(0.1, 0.9)", "y": "choice(a, b)", "seed": "choice(0, 1)"},
    "question": "Is x good?",
    "confirm_seeds": [7],
    "default": {"x": 0.1, "y": "a"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    work(root, **NODE)
    return root


def study_of(folder: Path, *trials: dict[str, Any], **about: Any) -> Study:
    """A study of a grid over x whose files have these trials."""
    record = {"name": "s", "question": "?", "command": ["train.py"], "analysis": {},
              "identity": {"params": {"x": ""}, "grid": True}, **about}  # fmt: skip
    columns = ["trial", "round", "state", "x", "seed", "val_win_rate", "best_step", "games",
               "seconds", "games_per_second", "no_spread", "test_win_rate",
               "test_mean_guesses_with_losses", "began", "ended", "curve", "lineage"]  # fmt: skip
    rows = [{"trial": n, "round": "search", "state": "complete", "x": 1, "seed": 0, **trial}
            for n, trial in enumerate(trials)]  # fmt: skip
    pd.DataFrame(rows, columns=pd.Index(columns)).to_csv(folder / "results.csv", index=False)
    (folder / "study.json").write_text(json.dumps(record))
    return read_study(folder)


def half_of(values: list[float]) -> float:
    """Half of the interval of a mean, as it is printed."""
    return float(format_mean(values, 1, 9).partition(" ± ")[2])


def test_the_interval_of_a_mean_over_seeds_is_students():
    # Snedecor & Cochran: three values, t(2 df, 97.5 %) = 4.303
    values = [0.60, 0.66, 0.75]
    assert half_of(values) == pytest.approx(
        4.303 * statistics.stdev(values) / math.sqrt(3), rel=1e-4
    )
    assert format_mean(values, 100, 1).startswith("67.0 ± ")
    assert format_mean([0.5, None, math.nan], 1, 1) == "0.5" and format_mean([None], 1, 1) == "-"


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # published to three decimals
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (14, 2.145),
     (29, 2.045), (60, 2.000), (120, 1.980)],
)  # fmt: skip
def test_the_interval_has_the_published_quantile_for_any_number_of_seeds(freedom, quantile):
    values = [float(i % 7) for i in range(freedom + 1)]
    used = half_of(values) / statistics.stdev(values) * math.sqrt(freedom + 1)
    assert used == pytest.approx(quantile, abs=5.01e-4)


def test_a_table_has_a_row_for_each_arm_and_counts_what_did_not_complete(tmp_path):
    study = study_of(
        tmp_path,
        {"val_win_rate": 0.5, "no_spread": 0.25, "test_win_rate": 0.4},
        {"val_win_rate": 0.7, "no_spread": 0.35, "seed": 1},
        {"state": "pruned", "seed": 2},
        {"val_win_rate": 0.2, "x": 2},
    )
    _, first, second = list_arms(study.trials, None)
    # t(1 df) * stdev / sqrt(2) = 12.706 * 10 points
    assert first[:6] == ["x=1", "2, 1 pruned", "-", "60.0 ± 127.1", "-", "40.0"]
    assert first[8].startswith("30.0 ±")
    assert second[:4] == ["x=2", "1", "-", "20.0"]


def test_arms_are_compared_with_the_default_seed_by_seed(tmp_path):
    wins = {1: (0.50, 0.60, 0.90), 2: (0.55, 0.61, None)}
    trials = [
        {"x": x, "seed": seed, "val_win_rate": value, "test_win_rate": 0.5 - 0.1 * x,
         "state": "complete" if value else "pruned"}
        for x, values in wins.items() for seed, value in enumerate(values)
    ]  # fmt: skip
    _, first, second = list_arms(study_of(tmp_path, *trials).trials, {"x": 1.0})
    assert (first[4], first[6]) == ("default", "default")
    # 5 points and 1; t(1 df) * stdev / sqrt(2) = 12.706 * 2
    assert (second[4], second[6]) == ("+3.0 ± 25.4", "-10.0 ± 0.0")


def test_the_page_states_the_games_that_pruning_saved_and_the_wins_of_the_start(tmp_path):
    def trial(seed: int, value: float | None, games: int) -> dict[str, Any]:
        curve = json.dumps([(0, 0.1 * (seed + 1)), (games, 0.5)])
        return {"seed": seed, "val_win_rate": value, "games": games, "curve": curve,
                "state": "complete" if value else "pruned"}  # fmt: skip

    study_of(
        tmp_path, trial(0, 0.5, 100), trial(1, None, 40), trial(0, None, 20), trial(1, 0.6, 100)
    )
    page = write_study(tmp_path).read_text()
    assert "\nPruning saved 35 % of the games of all trials in full length.\n" in page
    # t(1 df) * 5 points
    assert "\nThe starting model wins 15.0 ± 63.5 % of the validation games. Each seed" in page


def test_a_page_has_its_tables_and_a_picture(root):
    about = json.loads((root / "study" / "study.json").read_text())
    about["command"] = ["train.py", "-m", "sweep='study'", "optim.lr=1e-4,2e-4", "name='my run'"]
    (root / "study" / "study.json").write_text(json.dumps(about))
    (root / "study" / "README.md").unlink(missing_ok=True)
    page = write_study(root / "study")
    text = page.read_text()
    assert "Is x good?" in text
    # as it can be typed, and quoted for a shell where it must be
    assert "python train.py -m sweep=study optim.lr=1e-4,2e-4 'name='" in text
    assert "| x=0.9 y=a | 2 | 40 | 49.0 ± 0.0 | +" in text
    assert "Best on validation secrets: **x=0.9 y=a**" in text
    assert "arm=winner" in text and "arm=default" in text
    assert "| 25.0 ± 0.0 | default | 4.50 ± 0.00 |" in text  # of the runs' test summaries
    # once under each table, though every trial has it
    assert text.count("\n- Lineage: fake. word") == 2
    assert all(len(line) <= 100 for line in text.splitlines() if "word word" in line)
    assert [path.name for path in page.parent.glob("*.png")] == ["curves.png"]
    assert "](curves.png)" in text and not re.search(r"\n{3,}", text)


SEEDS = {"params": {"seed": "choice(0, 1, 2)"}, "question": "How much is luck?"}
# wins of 4, 14 and 24 %: t(2 df) * 10 points / sqrt(3)
OF_SEEDS = "14.0 ± 24.8"


def test_a_study_of_seeds_alone_ends_with_mean_interval_and_each_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"by_seed": 0.1}')
    work(tmp_path, **SEEDS)
    text = write_study(tmp_path / "study").read_text()
    assert f"| - | 3 | 40 | {OF_SEEDS} |" in text
    rows = ["| 0 | complete | 40 | 4.0 |", "| 1 | complete | 40 | 14.0 |"]
    assert all(row in text for row in [*rows, "| 2 | complete | 40 | 24.0 |"])
    assert "Best on validation secrets" not in text and "****" not in text


def test_what_a_person_wrote_stays_and_an_index_beside_the_folder_shows_it(root, tmp_path):
    page = write_study(root / "study")
    text = page.read_text().replace(UNWRITTEN, "More x, more wins.\n\nBecause.")
    page.write_text(text.replace("Is x good?", "Is x good? (Asked in November.)"))
    assert write_study(root / "study").read_text() == page.read_text()
    assert "More x, more wins.\n\nBecause." in page.read_text()
    assert "(Asked in November.)" in page.read_text()
    (root / "README.md").write_text("Of something else.")
    write_study(root / "study")
    assert (root / "README.md").read_text() == "Of something else."
    (root / "README.md").write_text(f"# Mine\n\n{BEGIN}\n{END}\n\nThe end.\n")
    write_study(root / "study")
    text = (root / "README.md").read_text()
    assert text.startswith("# Mine\n") and text.endswith("\nThe end.\n")
    assert "## [study](study/README.md)\n\nMore x, more wins.\n\n![" in text
    entry = "| [study](study/README.md) | Is x good? | x=0.1 y=b against x=0.1 y=a: "
    assert entry in text
    page.write_text("No markers.")
    with pytest.raises(ValueError, match="must have the lines"):
        write_study(root / "study")
    assert page.read_text() == "No markers."
    page.unlink()


def test_importance_finds_the_parameter_that_matters(tmp_path):
    sampler = {"_target_": "optuna.samplers.RandomSampler", "seed": 0}
    params = {"x": "interval(0.0, 1.0)", "y": "choice(1, 2)"}
    work(tmp_path, params=params, n_trials=12, sampler=sampler)
    folder = tmp_path / "study"
    first, second = estimate_importance(folder, read_study(folder))
    assert re.fullmatch(r"x (\d+) %", first) and second.startswith("y ")
    assert int(first.split()[1]) > 50, "x alone matters here"
    assert len(read_trials(folder, "search", parse_params(params)[0])) == 12
    assert f"(PED-ANOVA): {first}, {second}." in " ".join(write_study(folder).read_text().split())


def test_a_study_without_results_has_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"fail": "broken"}')
    with pytest.raises(Exception, match="in a row"):
        work(tmp_path)
    assert "3 failed" in write_study(tmp_path / "study").read_text()
    assert len(stored(tmp_path).trials) == 3


def test_a_folder_that_is_no_study_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(["study", str(tmp_path)])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "study.json" in line


def grid_of(folder: Path, arms: int, seeds: int = 3, start: float = 0.25) -> Study:
    """A study of arms that win 30 % and more, from a common start of 26 %."""
    return study_of(folder, *(
        {"x": x, "seed": seed, "val_win_rate": 0.4 + 0.02 * x + 0.01 * seed,
         "curve": json.dumps([(0, start + 0.01 * seed), (640, 0.3 + 0.02 * x + 0.01 * seed),
                              (1280, 0.4 + 0.02 * x + 0.01 * seed)])}
        for x in range(arms) for seed in range(seeds)
    ))  # fmt: skip


@pytest.mark.parametrize("count", [2, MOST_BANDS, MOST_BANDS + 1])
def test_at_most_five_bands_share_axes_with_words_units_and_the_number_of_seeds(tmp_path, count):
    figure = draw_study(grid_of(tmp_path, count))
    assert figure is not None
    upper, lower = figure.subfigs
    bands = [len(axes.collections) for axes in upper.axes]
    assert bands == ([count] if count <= MOST_BANDS else [1] * count)
    assert upper.axes[0].get_ylabel() == "validation games won (%)"
    assert upper.axes[-1].get_xlabel() == "training games"
    for axes in (*upper.axes, *lower.axes):
        assert "start, 26.0 %" in [line.get_label() for line in axes.lines]
    [note] = [text.get_text() for text in lower.texts]
    assert note.endswith("95 % interval of the mean over seeds (Student's t), n = 3.")


def test_one_seed_has_no_interval(tmp_path):
    figure = draw_study(grid_of(tmp_path, 2, seeds=1))
    assert figure is not None
    assert "so there is no interval" in figure.subfigs[1].texts[0].get_text()


def test_the_teacher_of_a_start_is_known_unless_the_study_may_change_it():
    about: dict[str, Any] = {"params": {"optim.lr": ""}, "stages": [["experiment=study"]]}
    assert find_teacher(about) == [("teacher: any word that fits", 89.7)]
    for change in ({"arms": {"a": ["1: model=micro"]}}, {"overrides": ["words=custom"]},
                   {"params": {"rules": ""}}, {"stages": [["model=smollm2"]]},
                   {"stages": [["model=nothing"]]}):  # fmt: skip
        assert find_teacher({**about, **change}) == []
