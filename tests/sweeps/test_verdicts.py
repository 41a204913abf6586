"""Differences between arms: their errors, intervals, corrections and verdicts."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from tests.helpers.studies import plan_of
from wordle_rl.sweeps import power
from wordle_rl.sweeps.plan import StudyPlan
from wordle_rl.sweeps.power import pool_spreads
from wordle_rl.sweeps.readme import list_arms, list_effects
from wordle_rl.sweeps.space import parse_params
from wordle_rl.sweeps.verdicts import (
    MEASURES,
    Spread,
    Study,
    add_outcomes,
    find_resolution,
    find_verdicts,
    find_winner,
    judge,
    measure_cells,
    measure_spread,
    pair_arms,
)

WINS = MEASURES["wins"]


def compare_cells(first: Mapping[tuple[int, str], float], second: Any) -> Spread | None:
    index = {"names": ["seed", "secret"]}
    return measure_spread(
        *(
            pd.Series([*cells.values()], pd.MultiIndex.from_tuples(cells, **index), dtype=float)
            for cells in (first, second)
        )
    )


def spread_of(means: list[float]) -> Spread:
    """The spread of one difference for each seed."""
    gaps = {(seed, ""): mean for seed, mean in enumerate(means)}
    spread = compare_cells(gaps, dict.fromkeys(gaps, 0.0))
    assert spread is not None
    return spread


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng, hits, tries = np.random.default_rng(0), 0, 100
    for _ in range(tries):
        gaps = (
            0.03
            + rng.normal(0, 0.02, (6, 1))
            + rng.normal(0, 0.1, (1, 60))
            + rng.normal(0, 0.3, (6, 60))
        )
        cells = {(s, str(w)): gaps[s, w] for s in range(6) for w in range(60)}
        spread = compare_cells(cells, dict.fromkeys(cells, 0.0))
        assert spread is not None
        [effect] = find_verdicts({"": spread}, MEASURES["guesses"], margin=0.0)
        hits += effect.low < 0.03 < effect.high
    assert hits >= 88  # 95 of 100 on average; fewer than 88 have a chance of 1 in 500


def test_verdicts_are_better_worse_equal_or_undecided():
    spreads = {
        "up": spread_of([0.10, 0.11, 0.12, 0.11]),
        "down": spread_of([-0.1, -0.12, -0.11, -0.11]),
        "same": spread_of([0.001, -0.001, 0.002, -0.002]),
        "still": spread_of([0.0, 0.0]),
        "open": spread_of([0.1, -0.1, 0.2]),
    }
    verdicts = {effect.name: effect.verdict for effect in find_verdicts(spreads, WINS, margin=2.0)}
    assert verdicts == {
        "up": "better",
        "down": "worse",
        "same": "equal within 2",
        "still": "nothing to compare",
        "open": "undecided",
    }
    guesses = find_verdicts({"up": spreads["up"]}, MEASURES["guesses"], margin=0.1)
    assert guesses[0].verdict == "worse", "more guesses are worse"


def test_holm_corrects_verdicts_chances_and_intervals():
    """Of three comparisons the first passes at 5 % / 3, the second fails at 5 % / 2."""
    chances = {"third": 0.04, "first": 0.01, "second": 0.03}  # each alone
    spreads = {
        name: Spread(
            mean=t.isf(p / 2, 5) * 0.02, error=0.02, seed_variance=0.02**2 * 6, seeds=6, secrets=1
        )
        for name, p in chances.items()
    }
    third, first, second = find_verdicts(spreads, WINS, margin=0.0)
    assert [e.verdict for e in (first, second, third)] == ["better", "undecided", "undecided"]
    _, p_values, *_ = multipletests([0.01, 0.03, 0.04], method="holm")
    assert [e.p for e in (first, second, third)] == pytest.approx(p_values)
    for effect, level in ((first, 0.05 / 3), (second, 0.05 / 2), (third, 0.05 / 2)):
        half = 100 * t.isf(level / 2, 5) * 0.02
        assert (effect.low, effect.high) == pytest.approx(
            (effect.difference - half, effect.difference + half)
        )


def test_the_resolution_is_the_difference_that_is_found_with_a_chance_of_80_percent():
    spread = Spread(mean=0.0, error=0.5, seed_variance=1.5, seeds=6, secrets=1)
    sizes = TTestPower().solve_power(nobs=6, alpha=0.05 / 3, power=0.8)
    expected = float(np.squeeze(sizes)) * math.sqrt(6) * 0.5
    assert find_resolution(spread, comparisons=3) == pytest.approx(expected, rel=1e-4)
    assert find_resolution(spread_of([0.0, 0.0]), comparisons=3) == 0.0


def study_of(trials: list[dict[str, Any]], games: Sequence[dict[str, Any]] = ()) -> Study:
    columns = ["round", "trial", "arm", "seed", "step", "secret", "guesses"]
    table = pd.DataFrame(
        [
            {
                "round": "search",
                "state": "complete",
                "val_win_rate": 0.9,
                "no_spread": 0.25,
                "trial": n,
                **t,
            }
            for n, t in enumerate(trials)
        ]
    )
    frame = pd.DataFrame(games, columns=pd.Index(columns)).astype({"guesses": str, "secret": str})
    return Study(
        folder=Path(),
        about={"name": "earlier", "identity": {"grid": True}, "analysis": {}},
        space={},
        trials=table,
        games=add_outcomes(frame),
    )


def test_an_earlier_run_tells_what_the_seeds_of_a_study_find(tmp_path, monkeypatch, capsys):
    """Two arms and four seeds of the earlier run; the study has six seeds and two comparisons."""
    gaps = [0.05, -0.02, 0.04, 0.01]
    run = study_of(
        [
            {"arm": f"x={x}", "seed": seed, "val_win_rate": 0.5 + gap * x}
            for seed, gap in enumerate(gaps)
            for x in (0, 1)
        ]
    )
    [spread] = pool_spreads(run, WINS, [6])
    sizes = TTestPower().solve_power(nobs=6, alpha=0.05 / 2, power=0.8)
    expected = float(np.squeeze(sizes)) * np.std(gaps, ddof=1)
    assert find_resolution(spread, comparisons=2) == pytest.approx(expected, rel=1e-4)
    node: dict[str, Any] = {
        "params": {"x": "choice(1, 2, 3)", "seed": "range(0, 5)"},
        "default": {"x": 1},
        "analysis": {"measure": "wins"},
    }
    lines = power_lines(plan_of(tmp_path, **node), run, monkeypatch, capsys)
    assert lines[1].startswith(f"this study: 6 seeds and 2 comparisons find {100 * expected:.1f},")


def power_lines(plan: StudyPlan, run: Study, monkeypatch: Any, capsys: Any) -> list[str]:
    """The lines about a study with this earlier run."""
    plan.settings.place.mkdir()
    (plan.settings.place / "study.json").touch()
    monkeypatch.setattr(power, "read_study", lambda _: run)
    power.tell_power(plan)
    return capsys.readouterr().out.splitlines()


def test_more_seeds_do_not_take_away_what_differs_from_secret_to_secret():
    """Arm x=1 needs 0, 1 or 2 guesses more, by the secret and in every seed alike."""
    extras = {"crane": 0, "moist": 1, "lucky": 2}
    arms = [(x, seed) for seed in range(3) for x in (0, 1)]
    games = [
        {
            "round": "search",
            "trial": n,
            "arm": f"x={x}",
            "seed": seed,
            "step": 1,
            "secret": secret,
            "guesses": " ".join(["slate"] * (1 + x * extra) + [secret]),
        }
        for n, (x, seed) in enumerate(arms)
        for secret, extra in extras.items()
    ]
    run = study_of([{"arm": f"x={x}", "seed": seed} for x, seed in arms], games)
    for spread in pool_spreads(run, MEASURES["guesses"], [3, 100]):
        assert spread.seed_variance == pytest.approx(0.0, abs=1e-12)
        assert spread.error == pytest.approx(np.std([0, 1, 2], ddof=1) / 3**0.5)


def test_an_earlier_run_without_any_spread_tells_nothing(tmp_path, monkeypatch, capsys):
    trials = [{"arm": f"x={x}", "seed": seed} for seed in (0, 1) for x in (0, 1)]
    run = study_of([{**trial, "test_win_rate": 0.0} for trial in trials])
    params = {"x": "choice(1, 2)", "seed": "choice(0, 1)"}
    plan = plan_of(tmp_path, params=params, analysis={"measure": "test_wins"})
    [line] = power_lines(plan, run, monkeypatch, capsys)
    assert "is not known: in earlier no two games or arms differ" in line


ARM = "x=0"


def game(guesses: str, **fields: Any) -> dict[str, Any]:
    return {
        "round": "search",
        "trial": 0,
        "arm": ARM,
        "seed": 5,
        "step": 4,
        "secret": "crane",
        "guesses": guesses,
    } | fields


def values_of(games: list[dict[str, Any]], name: str) -> dict[tuple[int, str], float]:
    """The measure of the only trial at each seed and secret."""
    study = study_of([{"arm": ARM, "seed": 5}], games)
    return measure_cells(study, "search", MEASURES[name])[ARM].to_dict()


def test_measures_of_a_game():
    games = [game("slate crane"), game("slate slate zzzzz! - - slate", secret="fugue")]
    expected = {"wins": [1.0, 0.0], "guesses": [2, 7], "repeats_over_time": [0.0, 2 / 6]}
    assert {name: [*values_of(games, name).values()] for name in expected} == expected
    assert {n for n, measure in MEASURES.items() if measure.of_games} == expected.keys()


def test_over_time_every_validation_counts_but_the_one_of_the_start():
    by_step = {0: "salad salad", 2: "slate slate slate slate", 4: "slate crane"}
    games = [game(guesses, step=step) for step, guesses in by_step.items()]
    assert values_of(games, "wins") == {(5, "crane"): 1.0}
    assert values_of(games, "repeats_over_time") == {(5, "crane"): 3 / 8}


@pytest.mark.parametrize("state", ["pruned", "failed"])
@pytest.mark.parametrize("name", ["wins", "idle_groups"])
def test_a_trial_that_did_not_end_counts_in_no_comparison(name, state):
    trials = [{"arm": ARM, "seed": 5}, {"arm": ARM, "seed": 6, "state": state}]
    games = [game("slate crane"), game("slate crane", trial=1, seed=6)]
    cells = measure_cells(study_of(trials, games), "search", MEASURES[name])
    assert [*cells.index.get_level_values("seed")] == [5]


def test_arms_that_win_nothing_have_nothing_to_compare():
    """A lost game that a violation ended has fewer guesses, which is no better."""
    trials = [{"arm": arm, "seed": seed} for arm in "ab" for seed in (0, 1)]
    losses = {"a": "slate slate", "b": "slate slate slate zzzzz! -"}
    games = [
        game(losses[trial["arm"]] + " slate" * trial["seed"], trial=number, **trial)
        for number, trial in enumerate(trials)
    ]
    [effect] = judge(grid := study_of(trials, games))
    assert effect.verdict == "nothing to compare"
    assert list_effects([effect], grid.measure)[1][2:6] == ["-", "-", "nothing to compare", "-"]
    games[0]["guesses"] = "slate crane"
    [effect] = judge(study_of(trials, games))
    assert effect.verdict == "undecided", "where one game is won there is something to compare"


def test_a_point_that_was_drawn_twice_is_one_seed():
    rows = [("often", 0, 0.9), ("often", 0, 0.9), ("both", 0, 0.6), ("both", 1, 0.62)]
    names = ("guesses", "games", "seconds", "test_win_rate", "test_mean_guesses_with_losses")
    blank = {**dict.fromkeys(names, math.nan), "metrics": {}}
    trials = [{"arm": arm, "seed": seed, "val_win_rate": wins} for arm, seed, wins in rows]
    study = study_of([{**trial, **blank} for trial in trials])
    study.about["analysis"]["measure"] = "wins"
    assert find_winner(study) == 2
    head, first, second = list_arms(study.select("search"), None)
    assert [row[1] for row in (first, second)] == ["1", "2"]
    assert first[head.index("validation wins %")] == "90.0", "one seed has no interval"


def test_the_winner_has_the_best_mean_over_all_seeds_by_the_studys_own_measure():
    rows = [
        ("a", 0, 0.60, 4.0),
        ("a", 1, 0.62, 4.4),
        ("b", 0, 0.90, 4.1),
        ("b", 1, 0.70, 4.5),
        ("lucky", 0, 0.99, 2.0),
    ]
    study = study_of(
        [
            {"arm": arm, "seed": seed, "val_win_rate": wins, "guesses": guesses}
            for arm, seed, wins, guesses in rows
        ]
    )
    assert find_winner(study) == 0, "guesses, which all verdicts are about"
    study.about["analysis"]["measure"] = "wins"  # type: ignore[index]
    assert find_winner(study) == 2
    study.trials["state"] = "failed"
    assert find_winner(study) is None


def test_comparisons_name_arms_or_parameters():
    space, _ = parse_params({"arm": "x,y", "lr": "1,2", "seed": "0,1"})
    arms = [f"arm={arm} lr={rate}" for arm in ("x", "y") for rate in (1, 2)]
    default = {"arm": "x", "lr": 1}
    all_pairs, _ = pair_arms(arms, space, default, {})
    assert list(all_pairs) == [f"{arm} against arm=x lr=1" for arm in arms[1:]]
    spec = {"y": ["y", "x"], "rate": [{"lr": 2.0}, {"lr": 1}], "z": ["z", "x"]}
    pairs, omissions = pair_arms(arms, space, default, spec)
    assert pairs == {"y": ("arm=y lr=1", "arm=x lr=1"), "rate": ("arm=x lr=2", "arm=x lr=1")}
    assert omissions == ["z"], "a study that was narrowed"
    for default in (None, {"arm": "not played", "lr": 1}):
        assert pair_arms(arms, space, default, {"z": ["z", "x"]}) == (all_pairs, ["z"])
