"""What the pictures of runs draw, as SVG and as PNG."""

import pytest
from matplotlib.figure import Figure

from tests.helpers.run_folders import make_run
from wordle_rl.reports.pictures import Picture, curve_pictures, draw_dots, to_svg
from wordle_rl.reports.run import WINS, Estimate, read_run, solvers_of
from wordle_rl.runs.files import StepLog
from wordle_rl.words.lists import load_words


def lines_of(picture: Picture):
    """Label -> values of each curve that a picture draws."""
    axes = Figure().subplots()
    picture.draw(axes)
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}


def test_curves_are_the_logged_numbers_beside_the_solvers(tmp_path):
    folder = make_run(tmp_path, digests={"words": load_words().digest})
    for step, rate in ((50, 0.5), (60, 0.75)):
        StepLog(folder / "metrics.jsonl").append(step, {"watch/test/win_rate": rate})
    run = read_run(folder)
    wins, guesses = map(lines_of, curve_pictures([run], solvers_of(run)))
    assert wins["validation, drawn at 0.7"] == pytest.approx([100 / 3, 100 / 3, 100, 100, 100])
    rates = [100 * (100 + 5 * step) / 512 for step in range(0, 41, 10)]
    assert wins["training, drawn at 0.9"] == pytest.approx(rates)
    assert wins["test secrets, greedy"] == [50.0, 75.0]
    assert wins["random_consistent (answers that fit all clues)"][0] == pytest.approx(98.2, abs=0.1)
    assert guesses["validation, drawn at 0.7"] == [5.0, 4.75, 4.5, 4.25, 4.0]
    assert guesses["optimum (published)"][0] == 3.421


def test_curves_say_how_the_words_behind_them_were_chosen(tmp_path):
    [wins, _] = curve_pictures([read_run(make_run(tmp_path, "a", player="entropy"))], [])
    assert {"training, by entropy", "validation, drawn at 0.7"} < lines_of(wins).keys()
    runs = [read_run(make_run(tmp_path, name)) for name in "bc"]
    [wins, _] = curve_pictures(runs, [])
    assert wins.note.startswith("Validation games of each run, drawn at 0.7. ")
    assert {"b, drawn at 0.7", "c, drawn at 0.7"} == lines_of(wins).keys()


def test_texts_are_escaped_and_dollars_are_dollars():
    def draw(axes):
        draw_dots(axes, [("<b>$x^2$", Estimate(0.3, 0.2))], strong=1, measure=WINS)

    picture = Picture("a", 'A "&" B', "n", draw)
    svg = to_svg(picture)
    assert "<b>" not in svg and "&lt;b&gt;$x^2$" in svg and 'aria-label="A &#34;&amp;&#34;' in svg
    assert "currentColor" in svg and "#1a1a1a" not in svg
