"""wordle-rl report --reference: a run beside the seeds that ship."""

import itertools
import json
import lzma
import math
import statistics
from pathlib import Path

import pytest
from scipy.stats import t

from tests.helpers.run_folders import make_run
from wordle_rl import __main__ as command
from wordle_rl.reports import reference
from wordle_rl.reports.reference import compare, describe, draw_bands, read_reference
from wordle_rl.runs.instantiate import ConfigError

NAMES = reference.list_references()
# A band needs three seeds, beside the one that is asked about.
LARGE = [name for name in NAMES if len(read_reference(name)[1]) > 3]


def report(*arguments: object) -> int:
    return command.run(["report", *map(str, arguments)])


@pytest.mark.parametrize("name", NAMES)
def test_each_seed_is_inside_the_band_of_all(name):
    header, seeds = read_reference(name)
    assert header["command"].startswith("python train.py") and len(seeds) >= 3
    for rows in seeds:
        comparison = compare(name, rows)
        assert not [exit for _, _, exit in comparison.metrics if exit]
        assert all("inside the band" in line for line in describe(comparison)[1:])


@pytest.mark.parametrize("name", LARGE)
def test_most_seeds_are_inside_the_band_of_the_others(name, tmp_path, monkeypatch):
    header, seeds = read_reference(name)
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    exits = 0
    for rows in seeds:
        records = [{"rows": seed} for seed in seeds if seed is not rows]
        with lzma.open(tmp_path / "others.jsonl.xz", "wt") as file:
            file.write("\n".join(map(json.dumps, [header, *records])))
        exits += any(exit for _, _, exit in compare("others", rows).metrics)
    assert exits <= 1


def test_an_unknown_name_ends_with_a_line_that_lists_all(tmp_path, capsys):
    run = make_run(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        report(run, "--reference", "nothing")
    assert f"--reference=nothing: it is one of {', '.join(NAMES)}" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        report(run, run, "--reference", NAMES[0])
    assert "--reference is for one run" in capsys.readouterr().err


def test_the_terminal_says_where_a_run_leaves_and_the_page_draws_it(tmp_path, capsys):
    run = make_run(
        tmp_path
    )  # which wins a third at first, and the reference more than three quarters
    report(run, "--reference", "gen_count_8")
    out = capsys.readouterr().out
    assert "beside gen_count_8, 6 seeds of python train.py experiment=study" in out
    assert "val/win_rate" in out and "leaves the band at step 0: 0.333, band 0.7" in out
    page = (run / "report.html").read_text()
    assert "val/win_rate beside gen_count_8" in page and "leaves it at step 0" in page


def test_a_run_without_a_step_or_metric_of_the_reference_is_told_so():
    with pytest.raises(ConfigError, match="no step and metric"):
        compare("gen_count_8", [{"step": 7, "val/win_rate": 0.5}, {"step": 10, "loss": 1.0}])


def test_a_picture_has_the_run_and_the_band():
    _, seeds = read_reference("gen_count_8")
    from wordle_rl.runs.figures import new_figure

    [picture] = draw_bands(compare("gen_count_8", seeds[0]))
    axes = new_figure(4, 3).subplots()
    picture.draw(axes)
    [line] = axes.get_lines()
    assert list(line.get_xdata()) == [row["step"] for row in seeds[0]]
    assert len(axes.collections) == 1 and "stays inside" in picture.note


def test_a_run_at_thirty_times_the_rate_leaves_the_band_at_the_step_that_a_slow_oracle_finds():
    # python train.py experiment=quick optim.lr=0.09, which unlearns to play within a few steps
    with lzma.open(Path(__file__).with_name("quick_broken.jsonl.xz"), "rt") as file:
        rows = [json.loads(line) for line in file]
    _, seeds = read_reference("quick")
    exits = {band.metric: exit for band, _, exit in compare("quick", rows).metrics}
    assert all(exits.values())
    for metric, exit in exits.items():
        assert exit and exit.step == slow_exit(metric, seeds, rows)


def slow_exit(metric, seeds, run_rows):
    """The first of two steps in a row, or the last one, whose value is outside on the same side."""
    curves = [{row["step"]: row[metric] for row in rows if metric in row} for rows in seeds]
    values = {row["step"]: row[metric] for row in run_rows if metric in row}
    steps = sorted(set(curves[0]).intersection(*curves[1:]))
    sides = []
    for place, step in enumerate(steps):
        window = steps[max(0, place - 2) : place + 3]
        spread = [statistics.variance([curve[s] for curve in curves]) for s in window]
        half = float(t.isf(0.005, 2 * (len(curves) - 1))) * math.sqrt(
            statistics.mean(spread) * (1 + 1 / len(curves))
        )
        middle = statistics.mean(curve[step] for curve in curves)
        if step in values:
            sides.append((step, (values[step] > middle + half) - (values[step] < middle - half)))
    for (step, side), (_, next_side) in itertools.pairwise([*sides, sides[-1]]):
        if side and side == next_side:
            return step
    return None
