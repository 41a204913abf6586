"""The doctor's page has the numbers of the kept runs, whose causes are known."""

import math

import pytest

from research.doctor import score
from wordle_rl.evaluation.doctor import Curves

RUNS = score.read_kept()


def test_the_page_is_as_the_kept_runs_have_it():
    page = score.PAGE.read_text(encoding="utf-8")
    assert page == score.render(page, RUNS), "python research/doctor/score.py writes it"


def test_there_are_enough_runs_of_each_half_and_model():
    assert len(RUNS) >= 120
    for half in score.HALVES:
        runs = [run for run in RUNS if run.half == half]
        healthy = sum(run.cause == "healthy" for run in runs)
        assert len(runs) >= 55 and 0.2 < healthy / len(runs) < 0.4
        assert {run.cause for run in runs} == {*score.SHOULD_SAY}
        assert {run.model for run in runs} == {"micro", "mini"}


def rows(wins, games, validation=(0.5, 0.4, 0.6)):
    names = ("val/win_rate", "val/win_rate_low", "val/win_rate_high")
    ends = dict(zip(names, validation, strict=True))
    steps = [{"train/win_rate": won, "train/games": games} for won in wins]
    return [{"step": 0.0, **ends}, *steps[:-1], {**steps[-1], **ends}]


def test_wins_rise_by_two_standard_errors_or_do_not():
    wins = [0.4] * 4 + [0.5] * 4 + [0.6] * 4
    training, validation = score.wins_of(rows(wins, 100.0))
    # by hand: 160.5 of 401 and 240.5 of 401
    before, after = 160.5 / 401, 240.5 / 401
    error = math.sqrt((before * (1 - before) + after * (1 - after)) / 401)
    assert training == pytest.approx((after - before) / error) and validation == 0
    assert score.Planted("healthy", "mini", "seen", {}, rows(wins, 100.0)).took
    assert not score.Planted("healthy", "mini", "seen", {}, rows(wins, 4.0)).took
    assert not score.Planted("kl", "mini", "seen", {}, rows(wins, 100.0)).took
    assert score.Planted("memorised", "mini", "seen", {}, rows(wins, 100.0)).took


def test_the_best_threshold_is_the_best_of_all():
    """A slow oracle for the metric that it finds."""
    runs = [run for run in RUNS if run.cause != "few" and run.half == "seen"]
    rule = score.best_threshold(runs)

    def value_of(run):
        curves = Curves(run.rows)
        first, last = curves.first(rule.metric), curves.last(rule.metric)
        rise = curves.rise(rule.metric) if rule.metric in curves else math.nan
        return {"first": first, "last": last, "change": last - first, "rise": rise}[rule.number]

    values = [(value_of(run), run.cause != "healthy") for run in runs]
    bad_values = [value for value, sick in values if sick]
    good_values = [value for value, sick in values if not sick]

    def quality(limit, above):
        def alarms(group):
            return sum(v > limit if above else v < limit for v in group) / len(group)

        return alarms(bad_values) - alarms(good_values)

    best = max(
        quality(limit + shift, above)
        for limit, _ in values
        if not math.isnan(limit)
        for shift in (-1e-9, 1e-9)
        for above in (True, False)
    )
    assert quality(rule.limit, rule.above) == pytest.approx(best)
