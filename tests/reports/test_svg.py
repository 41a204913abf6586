"""Pictures on a page: they follow its colours, need no style attributes, and escape their texts."""

from __future__ import annotations

import re

from wordle_rl.reports.drawing import Bars, Charts, Curves, Dots, Line
from wordle_rl.reports.results import Estimate

LINE = Line(label="<b>$x^2$", steps=[0, 1, 2], values=[0.1, 0.2, 0.3], low=[0.0, 0.1, 0.2],
            high=[0.2, 0.3, 0.4], dots=True)  # fmt: skip
CURVES = Curves(title="A & B", note="n", unit="%", lines=[LINE], levels=[("level", 0.5)],
                points=[("report", 1, Estimate(value=0.3, low=0.2, high=0.5))],
                percent=True)  # fmt: skip


def test_colours_are_variables_and_styles_are_classes():
    charts = Charts()
    chart = charts.curves(CURVES)
    assert chart is not None
    assert "style=" not in chart.svg and "http" not in chart.svg
    assert "var(--series1)" in charts.styles.css and "var(--ink)" in charts.styles.css
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]", charts.styles.css + chart.svg)
    used = {name for names in re.findall(r'class="([^"]*)"', chart.svg) for name in names.split()}
    assert used <= set(charts.styles.names.values())


def test_texts_are_escaped_and_dollars_are_dollars():
    chart = Charts().curves(CURVES)
    assert chart is not None
    assert "<b>" not in chart.svg and "&lt;b&gt;$x^2$" in chart.svg
    assert '<title id="chart0-title">A &amp; B</title>' in chart.svg


def test_pictures_of_a_page_share_no_names():
    charts = Charts()
    both = [charts.curves(CURVES), charts.curves(CURVES)]
    names = [re.findall(r' id="([^"]+)"', chart.svg) for chart in both if chart]
    assert len(names) == 2 and not set(names[0]) & set(names[1])
    for chart, own in zip(both, names, strict=True):
        assert chart is not None
        assert set(re.findall(r'(?:href="|url\()#([\w-]+)', chart.svg)) <= set(own)


def test_the_numbers_of_a_picture_are_in_its_table():
    chart = Charts().curves(CURVES)
    assert chart is not None
    assert chart.columns == ["training step", "<b>$x^2$"]
    assert list(chart.rows) == [["0", "10.0"], ["1", "20.0"], ["2", "30.0"],
                                ["1: report", "30.0 (20.0 to 50.0)"],
                                ["level", "50.0"]]  # fmt: skip
    bars = Charts().bars(
        Bars(title="t", note="n", unit="u", labels=["a"], series=[("one", [1.0]), ("two", [None])])
    )
    assert bars is not None and list(bars.rows) == [["a", "1", "–"]]
    dots = Charts().dots(Dots(title="t", note="n", unit="u", rows=[("a", Estimate(value=2.0))]))
    assert dots is not None and list(dots.rows) == [["a", "2", "–", "–"]]


def test_nothing_to_draw_is_no_picture():
    charts = Charts()
    assert charts.curves(Curves(title="t", note="n", unit="u", lines=[])) is None
    assert charts.bars(Bars(title="t", note="n", unit="u", labels=[], series=[])) is None
    assert charts.dots(Dots(title="t", note="n", unit="u", rows=[])) is None


def test_long_curves_keep_their_ends_and_stay_small():
    steps = list(range(5000))
    line = Line(label="long", steps=steps, values=[float(step % 7) for step in steps])
    assert (line.thinned(250)[0], line.thinned(250)[-1]) == (0, 4999)
    chart = Charts().curves(Curves(title="t", note="n", unit="u", lines=[line]))
    assert chart is not None and len(chart.svg) < 30_000 and len(chart.rows) == 40
