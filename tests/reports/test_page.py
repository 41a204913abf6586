"""The page of one run or several: what it says, that it loads nothing, what a run may lack."""

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from tests.helpers.run_folders import BEFORE, make_run
from wordle_rl.reports import page as pages
from wordle_rl.reports.page import make_page
from wordle_rl.reports.run import read_run
from wordle_rl.runs.files import StepLog, write_json
from wordle_rl.words.lists import load_words

MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
DEFAULTS = {"optim.lr": "0.001", "seed": "0"}


class Page(HTMLParser):
    """The elements of a page, its texts, and its headings."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # tag and text
        self._open = [""]
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1], data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [text.strip() for name, text in self.texts if name == tag and text.strip()]

    @property
    def prose(self) -> str:
        """Everything that a reader sees, in one line."""
        tags = ("script", "style")
        return " ".join(" ".join(t for name, t in self.texts if name not in tags).split())


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """Most tests read a page's text, and drawing takes most of its time."""
    monkeypatch.setattr("wordle_rl.reports.page.to_svg", lambda picture: "")


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """The page of a whole run."""
    return html_of(make_run(tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def html_of(*folders):
    return make_page([read_run(folder) for folder in folders], DEFAULTS)


def page_of(*folders):
    return Page(html_of(*folders))


def test_the_page_says_what_training_changed_with_its_interval(page):
    prose = page.prose
    assert (
        "The model wins 100.0 (43.9 to 100.0) % of test secrets after step 40 (greedy), " in prose
    )
    assert "33.3 (6.1 to 79.2) % before training (greedy)." in prose
    # Gains of 0, 1 and 1: a mean of 2/3 with a standard error of 1/3.
    assert "The change on the same 3 secrets" in prose
    assert "+66.7 (+1.3 to +132.0) points of wins" in prose
    assert "2 secrets went better and 0 worse (sign test: p = 0.500)" in prose
    assert "training step this run (drawn at 0.7) 0 33.3 (6.1 to 79.2) 10 33.3" in prose
    assert prose.count("lineage: untrained.") == 1


@pytest.mark.parametrize(
    ("low", "high", "undecided"),
    [(-0.1, 0.2, True), (-0.2, 0.0, True), (0.01, 0.2, False), (-0.3, -0.1, False)],
)
def test_the_page_calls_a_difference_undecided_where_its_interval_has_0(
    low, high, undecided, monkeypatch
):
    change = SimpleNamespace(
        wins=pages.Estimate(0.05, low, high),
        guesses=pages.Estimate(0.0, -1.0, 1.0),
        secrets=9,
        p_value=0.2,
        only_first=1,
        only_second=2,
    )
    monkeypatch.setattr(pages, "difference", lambda first, second: change)
    [text] = pages._describe_difference(None, None, "The change")  # pyright: ignore
    assert ("contains 0, so whether wins differ is undecided" in text) is undecided


def test_every_part_is_there(page):
    assert page.text("h1") == ["Run demo"]
    assert page.text("h2") == [
        "Result",
        "Curves",
        "How it plays",
        "Games",
        "Settings",
        "How it was made",
    ]
    labels = [picture["aria-label"] for picture in page.of("svg") if picture["role"] == "img"]
    assert labels == [
        "Games won by each player",
        "Mean guesses of each player",
        "Games won",
        "Mean number of guesses",
    ]
    assert len(page.of("table")) == 5
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))


def test_nothing_leaves_the_page(html, page):
    for tag, attributes in page.elements:
        assert not {"src", "srcset", "action", "data"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert all((attributes.get(k) or "#")[0] == "#" for k in ("href", "xlink:href")), tag
        assert tag not in ("link", "base", "iframe", "object", "embed", "img")
    html = re.sub(r'xmlns(:xlink)?="[^"]*"', "", html)  # names, not addresses
    assert not re.search(r"https?://|@import|url\((?!#)|\bfetch\(|XMLHttp|import\(", html)
    [meta] = [m for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert str(meta["content"]).startswith("default-src 'none';")


def test_texts_of_a_run_are_never_markup(tmp_path, monkeypatch):
    monkeypatch.undo()
    name = f"20261122-0856_{MARKUP.replace('/', '')}"
    folder = make_run(tmp_path, status_reason=MARKUP, platform=MARKUP, model=MARKUP)
    folder = folder.rename(tmp_path / name)
    record = {
        "secret": MARKUP,
        "won": False,
        "guesses": [MARKUP, None],
        "feedback": [None, None],
        "kinds": ["not_a_word", "unparsable"],
        "texts": ["", MARKUP],
    }
    for file in ("start_games.jsonl", "best_games.jsonl"):
        StepLog(folder / file).append(0, record)
    summary = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", {**summary, "lineage": MARKUP})
    config = {"optim": {"lr": MARKUP}, MARKUP: 1}
    (folder / "config.yaml").write_text(json.dumps(config))
    other_run = make_run(tmp_path, "other")
    for page in (page_of(folder), page_of(folder, other_run)):  # names are also in pictures
        assert len(page.of("script")) == 2 and not page.of("img")
        assert page.prose.count("alert(1)") > 5
        assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]


def test_all_games_are_there_for_the_filter(html):
    [[data, *validations]] = map(json.loads, re.findall(r'/json"[^>]*>(.*?)</script>', html))
    assert data["players"] == ["before training (greedy)", "after step 40 (greedy)"]
    [crane, sleep, _] = data["games"]
    rows = [["slate", "22020", "", ""], ["crane", "00000", "", ""]]
    assert crane == ["crane", [True, rows], [True, rows]]
    assert sleep[1][0] is False and len(sleep[1][1]) == 6
    assert sleep[1][1][1] == ["", "", "no guess", "<None>"]
    assert validations[0]["name"] == "validation (drawn at 0.7), step 10"
    assert [view["players"][1] for view in validations] == [f"step {n}" for n in (10, 20, 30, 40)]
    assert [board[0] for board in validations[-1]["games"][1][1:]] == [False, True]


def test_a_run_whose_best_is_its_start_says_so(run):
    summary = json.loads((run / "summary.json").read_text())
    write_json(run / "summary.json", {**summary, "exported_step": 0})
    text = "Best checkpoint: step 0, the start (greedy). It wins 100.0 (43.9 to 100.0) % of test"
    assert text in page_of(run).prose


def test_a_page_says_whether_the_run_learns(run):
    page = page_of(run)
    assert "Does it learn?" not in page.text("h2"), "five steps are too few"
    log = StepLog(run / "metrics.jsonl")
    for step in range(41, 60):
        log.append(step, {"policy/sampler_gap": 0.5})
    text = "sampler and trainer differ: log-probabilities differ by 0.500 nats a token"
    assert f"Does it learn? {text}" in page_of(run).prose


def test_solvers_and_optimum_are_beside_runs_on_the_original_lists(tmp_path):
    page = page_of(make_run(tmp_path, digests={"words": load_words().digest}))
    assert "random_consistent_allowed (words that fit all clues)" in page.text("th")
    assert "optimum (published, all 2,315 answers)" in page.text("th")
    folder = make_run(tmp_path / "other")
    assert "optimum" not in " ".join(page_of(folder).text("th"))


def test_a_run_without_its_end_shows_what_it_has(run):
    (run / "summary.json").unlink()
    prose = page_of(run).prose
    assert "summary.json is missing" in prose
    assert "The model wins 33.3 (6.1 to 79.2) % of test secrets before training (greedy)." in prose
    assert "training step this run (drawn at 0.7) 0 33.3 (6.1 to 79.2) 10 33.3" in prose


def test_runs_are_compared_secret_by_secret(tmp_path):
    good_run, bad_run = make_run(tmp_path, "good"), make_run(tmp_path, "bad", after=BEFORE)
    page = page_of(good_run, bad_run)
    assert page.text("h1") == ["2 runs: good and bad"]
    assert "bad (greedy) wins 33.3 (6.1 to 79.2) % of test secrets." in page.prose
    assert "bad (greedy) against the first on the same 3 secrets" in page.prose
    assert "-66.7 (-132.0 to -1.3) points" in page.prose
    assert "good: lineage: untrained." in page.text("p")
