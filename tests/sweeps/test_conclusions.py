"""Every shipped study ends in something to use."""

import re

import pytest

from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.readme import CONCLUSION, END, UNWRITTEN

PAGES = sorted((ROOT / "sweeps").glob("*/README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_study_ends_with_a_conclusion_that_has_a_number(page):
    text = page.read_text(encoding="utf-8")
    _, heading, conclusion = text.partition(END)[2].partition(f"{CONCLUSION}\n")
    paragraph = conclusion.strip().partition("\n\n")[0]
    assert heading and re.search(r"\d", paragraph), "no number in the first paragraph"
    assert UNWRITTEN not in text


def test_the_index_has_the_conclusion_of_each_study():
    index = (ROOT / "sweeps" / "README.md").read_text(encoding="utf-8")
    assert UNWRITTEN not in index
    assert len(PAGES) >= 17 and all(f"]({page.parent.name}/README.md)" in index for page in PAGES)
