"""The report of a study: its tables, its pictures, and what a person wrote."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from pathlib import Path

import pytest

from tests.helpers.studies import stored, work
from wordle_rl import study
from wordle_rl.sweeps import index, report
from wordle_rl.sweeps.means import Mean
from wordle_rl.sweeps.results import Result

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


def result(value: float | None, **more: object) -> Result:
    state = "complete" if value is not None else "pruned"
    given = {"number": 0, "confirms": False, "state": state, "params": {"x": 1, "seed": 0}}
    return Result(**{**given, "value": value, "figures": {}, **more})  # type: ignore[arg-type]


def test_the_interval_of_a_mean_over_seeds_is_students():
    # Snedecor & Cochran: three values, t(2 df, 97.5 %) = 4.303
    values = [0.60, 0.66, 0.75]
    mean = Mean.of(values)
    assert mean is not None and mean.half is not None and mean.count == 3
    assert mean.mean == pytest.approx(0.67)
    assert mean.half == pytest.approx(4.303 * statistics.stdev(values) / math.sqrt(3), rel=1e-4)
    one = Mean.of([0.5, None])
    assert one is not None and one.half is None
    assert Mean.of([None]) is None


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # published to three decimals
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365),
     (8, 2.306), (9, 2.262), (10, 2.228), (11, 2.201), (12, 2.179), (13, 2.160), (14, 2.145),
     (15, 2.131), (16, 2.120), (17, 2.110), (18, 2.101), (19, 2.093), (20, 2.086), (21, 2.080),
     (22, 2.074), (23, 2.069), (24, 2.064), (25, 2.060), (26, 2.056), (27, 2.052), (28, 2.048),
     (29, 2.045), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)],
)  # fmt: skip
def test_the_interval_has_the_published_quantile_for_any_number_of_seeds(freedom, quantile):
    values = [float(i % 7) for i in range(freedom + 1)]
    mean = Mean.of(values)
    assert mean is not None and mean.half is not None
    used = mean.half / statistics.stdev(values) * math.sqrt(freedom + 1)
    assert used == pytest.approx(quantile, abs=5.01e-4)


def test_with_very_many_seeds_the_interval_is_that_of_the_normal_distribution():
    values = [float(i % 7) for i in range(20_000)]
    mean = Mean.of(values)
    assert mean is not None and mean.half is not None
    used = mean.half / statistics.stdev(values) * math.sqrt(len(values))
    assert used == pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=2e-4)


def test_a_table_has_a_row_for_each_arm_and_counts_what_did_not_complete():
    table = report.format_results(
        [
            result(0.5, figures={"no_spread": 0.25, "test_win_rate": 0.4}),
            result(0.7, figures={"no_spread": 0.35}),
            result(None),
            result(0.2, params={"x": 2, "seed": 0}),
        ]
    )
    _, _, first, second = table.splitlines()
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    # t(1 df) * stdev / sqrt(2) = 12.706 * 10 points
    assert cells[:6] == ["x=1", "2, 1 pruned", "-", "60.0 ± 127.1", "-", "40.0"]
    assert cells[8].startswith("30.0 ±")
    assert second.startswith("| x=2 | 1 | - | 20.0 |")


def test_arms_are_compared_with_the_default_seed_by_seed():
    def trial(x: int, seed: int, value: float | None, test: float) -> Result:
        return result(value, params={"x": x, "seed": seed}, figures={"test_win_rate": test})

    table = report.format_results(
        [
            *(trial(1, 0, 0.50, 0.4), trial(1, 1, 0.60, 0.4), trial(1, 2, 0.90, 0.4)),
            *(trial(2, 0, 0.55, 0.3), trial(2, 1, 0.61, 0.3), trial(2, 2, None, 0.3)),
        ],
        {"x": 1},
    )
    _, _, first, second = ([c.strip() for c in line.split("|")] for line in table.splitlines())
    assert (first[5], first[7]) == ("default", "default")
    # 5 points and 1; t(1 df) * stdev / sqrt(2) = 12.706 * 2
    assert (second[5], second[7]) == ("+3.0 ± 25.4", "-10.0 ± 0.0")


def test_the_page_states_the_games_that_pruning_saved_and_the_wins_of_the_start():
    def trial(seed: int, value: float | None, games: int) -> Result:
        figures = {"games": games, "curve": [(0, 0.1 * (seed + 1)), (games, 0.5)]}
        return result(value, params={"x": 1, "seed": seed}, figures=figures)

    trials = [trial(0, 0.5, 100), trial(1, None, 40), trial(0, None, 20), trial(1, 0.6, 100)]
    assert report._describe_pruning(trials) == [
        "Pruning saved 35 % of the games of all trials in full length."
    ]
    assert report._describe_pruning(trials[:1]) == []
    [line] = report._describe_start(trials)
    assert line.startswith("The starting model wins 15.0 ± 63.5 %")  # t(1 df) * 5 points


def test_a_report_has_table_csv_and_pictures(root):
    about = json.loads((root / "study" / "study.json").read_text())
    about["command"] = ["train.py", "-m", "sweep='study'", "optim.lr=1e-4,2e-4", "name='my run'"]
    (root / "study" / "study.json").write_text(json.dumps(about))
    page = study.write_report(root / "study")
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
    names = {p.name for p in page.parent.glob("*.png")}
    assert names == {"curves.png", "wins.png", "compute.png", "importance.png", "parallel.png"}
    assert all(f"({name})" in text for name in names)
    rows = list(csv.DictReader(io.StringIO((page.parent / "results.csv").read_text())))
    assert len(rows) == 8 + 2 and [r["round"] for r in rows].count("confirmation") == 2
    assert {r["test_mean_guesses_with_losses"] for r in rows} == {"4.5"}
    assert {r["games"] for r in rows} == {"40"} or {r["games"] for r in rows} == {"40.0"}


SEEDS = {"params": {"seed": "choice(0, 1, 2)"}, "question": "How much is luck?"}
# wins of 4, 14 and 24 %: t(2 df) * 10 points / sqrt(3)
OF_SEEDS = "14.0 ± 24.8"


def test_a_study_of_seeds_alone_ends_with_mean_interval_and_each_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"by_seed": 0.1}')
    work(tmp_path, **SEEDS)
    text = study.write_report(tmp_path / "study").read_text()
    assert f"| - | 3 | 40 | {OF_SEEDS} |" in text
    rows = ["| 0 | complete | 40 | 4.0 |", "| 1 | complete | 40 | 14.0 |"]
    assert all(row in text for row in [*rows, "| 2 | complete | 40 | 24.0 |"])
    assert "Best on validation secrets" not in text and "****" not in text


@pytest.mark.slow
def test_what_a_person_wrote_stays_and_the_index_shows_it(root):
    page = study.write_report(root / "study")
    text = page.read_text().replace(report.UNWRITTEN, "More x, more wins.\n\nBecause.")
    page.write_text(text.replace("Is x good?", "Is x good? (Asked in November.)"))
    assert study.write_report(root / "study").read_text() == page.read_text()
    assert "More x, more wins.\n\nBecause." in page.read_text()
    assert "(Asked in November.)" in page.read_text()
    assert not (root / "README.md").exists(), "a study of one's own is in no index"
    study.write_report(root / "study", listed=True)
    study.write_report(root / "study")  # from then on its entry is kept up to date
    text = (root / "README.md").read_text()
    assert "## [study](study/README.md)\n\nMore x, more wins.\n\n![" in text
    assert "(study/wins.png)" in text


def test_the_index_keeps_its_studies_and_takes_no_others(tmp_path):
    for name in ("shipped", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"{report.CONCLUSION}\n\nIt is {name}.\n")
    index.write_index(tmp_path, "shipped")
    before = (tmp_path / "README.md").read_text()
    assert "It is shipped." in before and "own" not in before
    index.write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == before


def test_importance_finds_the_parameter_that_matters(root):
    from wordle_rl.sweeps.reading import read_study

    importance = read_study(root / "study").importance
    assert max(importance, key=lambda name: importance[name].value) == "x"
    assert sum(share.value for share in importance.values()) == pytest.approx(1.0)
    assert all(0.0 <= share.low <= share.high <= 1.0 for share in importance.values())
    assert importance["x"].low > importance["y"].value, "x alone matters here"


def test_importance_counts_pruned_trials_by_their_first_validation():
    import optuna

    from wordle_rl.sweeps.importance import estimate_importance

    study = optuna.create_study(direction="maximize")
    for number in range(20):
        x, y = number / 20, (7 * number % 20) / 20
        complete = x > 0.75
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.COMPLETE if complete else
                optuna.trial.TrialState.PRUNED,
                value=0.9 if complete else None,  # complete trials are alike
                params={"x": x, "y": y},
                distributions=dict.fromkeys("xy", optuna.distributions.FloatDistribution(0, 1)),
                intermediate_values={1: x, 2: 0.9},
            )
        )  # fmt: skip
    importance = estimate_importance(study)
    assert importance["x"].value > 0.9


def test_a_study_without_results_has_a_report(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"fail": "broken"}')
    with pytest.raises(Exception, match="in a row"):
        work(tmp_path)
    assert "3 failed" in study.write_report(tmp_path / "study").read_text()
    assert len(stored(tmp_path).trials) == 3


def test_a_folder_that_is_no_study_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        study.main([str(tmp_path)])
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "study.json" in line
