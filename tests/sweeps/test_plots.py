"""The pictures of a study: words, units, bands that can be told apart, and the start as a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wordle_rl.runs.figures import MOST_BANDS
from wordle_rl.sweeps import plots
from wordle_rl.sweeps.curves import draw_curves
from wordle_rl.sweeps.plots import write_plots
from wordle_rl.sweeps.results import Result, Share, Study


def trial(number: int, x: int, seed: int, wins: float = 0.5) -> Result:
    curve = [(0, 0.25 + 0.01 * seed), (640, wins), (1280, wins + 0.1)]
    figures = {"curve": curve, "seconds": 60.0 + number, "games": 1280}
    params: dict[str, Any] = {"optim.x": x, "seed": seed}
    return Result(
        number=number, confirms=False, state="complete", params=params, value=wins + 0.1,
        figures=figures,
    )  # fmt: skip


def arms(count: int, seeds: int = 3) -> list[Result]:
    return [
        trial(x * seeds + seed, x, seed, 0.3 + 0.02 * x + 0.01 * seed)
        for x in range(count) for seed in range(seeds)
    ]  # fmt: skip


SHARES = {
    "optim.x": Share(value=0.75, low=0.5, high=0.9), "seed": Share(value=0.25, low=0.1, high=0.5),
}  # fmt: skip


def drawn(results: list[Result], tmp_path, monkeypatch, references=()) -> dict[str, Any]:
    figures = {}
    monkeypatch.setattr(
        plots, "save_figure", lambda figure, out: figures.update({out.name: figure})
    )
    study = Study(
        name="s", question="?", command=["train.py"], identity={}, analysis={},
        results=tuple(results), games={}, best=None, importance=SHARES,
    )  # fmt: skip
    write_plots(study, tmp_path, references)
    return figures


def said(figure: Any) -> str:
    return " ".join(text.get_text() for text in figure.texts)


def test_every_picture_has_a_title_in_words_units_and_its_n(tmp_path, monkeypatch):
    figures = drawn(arms(3), tmp_path, monkeypatch)
    units = "validation games won (%)"
    expected = {
        "curves.png": ("Validation games won over training games", "training games", units),
        "wins.png": ("Validation games won by the best checkpoint of each trial", "", units),
        "compute.png": ("Validation games won against time", "minutes spent on training", units),
        "importance.png": (
            "What sets the better trials apart", "share of the importance (PED-ANOVA)", "",
        ),
    }  # fmt: skip
    for name, (title, x, y) in expected.items():
        axes = figures[name].axes[0]
        shown = axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()
        assert shown == (title, x, y)
    seeds = "95 % interval of the mean over seeds (Student's t), n = 3 seeds."
    assert said(figures["curves.png"]) == f"Band: {seeds}"
    assert said(figures["wins.png"]).endswith(f"Bar: {seeds}")
    assert said(figures["importance.png"]) == (
        "n = 9 complete trials. Bars: 90 % intervals from trials drawn again."
    )


def test_importance_with_pruned_trials_says_how_they_are_judged(tmp_path, monkeypatch):
    results = arms(3)
    results[0] = replace(results[0], state="pruned", value=None)
    assert said(drawn(results, tmp_path, monkeypatch)["importance.png"]).startswith(
        "n = 9 trials, each judged by its first validation."
    )


@pytest.mark.parametrize("count", [3, MOST_BANDS + 1])
def test_players_near_the_arms_are_lines_and_others_are_left_out(tmp_path, monkeypatch, count):
    # The arms win 26 to 50 %.
    figures = drawn(arms(count), tmp_path, monkeypatch, [("teacher", 45.0), ("optimum", 100.0)])
    for name in ("curves.png", "wins.png"):
        for axes in figures[name].axes:
            labels = [line.get_label() for line in axes.lines]
            assert "teacher, 45.0 %" in labels and "start, 26.0 %" in labels
            assert not any("optimum" in str(label) for label in labels)


def test_trials_with_long_names_have_their_numbers(tmp_path, monkeypatch):
    more = {"rollout.a_long_setting": 0.5, "algorithm.another_long_setting": 1}
    sampled = [replace(trial(n, n, 0, 0.3 + 0.02 * n), params={"optim.x": n, **more})
               for n in range(3)]  # fmt: skip
    figures = drawn(sampled, tmp_path, monkeypatch)
    names = [text.get_text() for text in figures["wins.png"].axes[0].get_xticklabels()]
    assert names == ["trial 0", "trial 1", "trial 2"]
    for name in ("curves.png", "wins.png", "compute.png"):
        assert said(figures[name]).endswith("Trials have their numbers in results.csv.")


@pytest.mark.parametrize("count", [2, MOST_BANDS, MOST_BANDS + 1, 10])
def test_at_most_five_bands_share_a_picture(count):
    figure = draw_curves([({"optim.x": x}, arms(count)[3 * x : 3 * x + 3]) for x in range(count)])
    assert figure is not None
    bands = [len(axes.collections) for axes in figure.axes]
    assert bands == ([count] if count <= MOST_BANDS else [1] * count)
    if count > MOST_BANDS:
        assert {"mean of the panel's arm"} < {t.get_text() for t in figure.legends[0].get_texts()}


def test_the_common_start_is_a_line_and_differing_starts_are_none():
    same = draw_curves([({"optim.x": 0}, arms(1))])
    assert same is not None
    levels = {line.get_label(): set(line.get_ydata()) for line in same.axes[0].lines}
    assert levels["start, 26.0 %"] == {26.0}  # 25, 26 and 27 %
    other = [trial(9, 1, 0)]
    other[0].figures["curve"][0] = (0, 0.6)
    apart = draw_curves([({"optim.x": 0}, arms(1)), ({"optim.x": 1}, other)])
    assert apart is not None
    assert not any("start" in str(line.get_label()) for line in apart.axes[0].lines)


def test_one_seed_has_no_interval():
    figure = draw_curves([({"optim.x": 0}, arms(1, seeds=1))])
    assert figure is not None and not figure.axes[0].collections
    assert said(figure) == "One seed for each arm, so there is no interval."
