"""The page of a run: what it says, that it loads nothing, and what a damaged run lacks."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from tests.helpers.run_folders import AFTER, BEFORE, Page, make_run, write_report
from wordle_rl.reports.run import Setting, read_run
from wordle_rl.reports.run_page import run_page
from wordle_rl.reports.solvers import FILE
from wordle_rl.runs.files import StepLog, write_json
from wordle_rl.runs.folder import RunFolderError
from wordle_rl.solver_games import count_guesses
from wordle_rl.words.lists import load_words

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
SETTINGS = [Setting("optim.lr", "1e-3", "1e-4")]


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


def html_of(folder, settings=SETTINGS):
    return run_page(read_run(folder, settings))


def page_of(folder, settings=SETTINGS):
    return Page(html_of(folder, settings))


def test_the_page_says_what_training_changed_with_its_interval(page):
    prose = page.prose
    assert "The model wins 100.0 (43.9 to 100.0) % of test secrets after step 40" in prose
    assert "33.3 (6.1 to 79.2) % before training" in prose
    # Gains of 0, 1 and 1: a mean of 2/3 with a standard error of 1/3.
    assert "a change of +66.7 (+1.3 to +132.0) points" in prose
    assert "2 secrets went better and 0 worse" in prose


def test_every_part_is_there_under_a_heading_that_the_navigation_links_to(page):
    assert page.text("h1") == ["Run demo"]
    assert page.text("h2") == [
        "Result", "Curves", "How it plays", "The same secrets before and after",
        "All games on test secrets", "Settings", "Lineage", "Time and memory", "How it was made",
    ]  # fmt: skip
    ids = {attributes.get("id") for _, attributes in page.elements}
    links = [link["href"] for link in page.of("a")]
    assert len(links) > 9 and {link[1:] for link in links} <= ids
    titles = page.text("title")[1:]
    for title in ("Games won", "Mean number of guesses", "Reward of a game", "Memory",
                  "Games by number of guesses", "Time of the training steps",
                  "Guesses that fit all clues, by turn"):  # fmt: skip
        assert title in titles


def test_tables_have_captions_and_pictures_texts(page):
    assert len(page.of("table")) == len(page.of("caption")) > 10
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    assert page.of("svg")
    for picture in page.of("svg"):
        assert picture["role"] == "img"
        assert set(str(picture["aria-labelledby"]).split()) <= set(ids)


def test_nothing_leaves_the_page(html, page):
    for tag, attributes in page.elements:
        assert not {"src", "srcset", "style", "action", "data"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith("#"), tag
        assert tag not in ("link", "base", "iframe", "object", "embed", "img")
    outside = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", html, flags=re.S)
    for text in (html, outside):
        assert not re.search(r"https?://|@import|url\((?!#)|\bfetch\(|XMLHttp|import\(", text)


def test_the_policy_names_the_digests_of_the_pages_own_style_and_script(html, page):
    [meta] = [m for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    policy = str(meta["content"])
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for tag in ("style", "script"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_texts_of_a_run_are_never_markup(tmp_path):
    name = f"2026-11-22_08-56-39_{HOSTILE.replace('/', '')}_8606-4bf868"
    folder = make_run(tmp_path, status_reason=HOSTILE, platform=HOSTILE, model=HOSTILE)
    folder = folder.rename(tmp_path / name)
    record = {"secret": HOSTILE, "won": False, "guesses": [HOSTILE, None], "feedback": [None, None],
              "kinds": ["not_a_word", "unparsable"], "texts": ["", HOSTILE]}  # fmt: skip
    for file in ("start_games.jsonl", "best_games.jsonl"):
        StepLog(folder / file).append(0, record)
    summary = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", {**summary, "lineage": HOSTILE})
    (folder / "model").mkdir()
    stage = {"run": HOSTILE, "player": HOSTILE}
    write_json(folder / "model" / "wordle_rl.json", {"stages": [stage]})
    page = page_of(folder, [Setting(HOSTILE, HOSTILE, HOSTILE)])
    assert len(page.of("script")) == 2 and not page.of("img")
    assert page.prose.count("alert(1)") > 5
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]


def test_all_games_are_there_for_the_filter(html):
    data = json.loads(re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html)[0])
    assert data["players"] == ["before training", "after step 40"]
    [crane, sleep, _] = data["games"]
    assert crane == ["crane", *[[1, 2, [["slate", "22020"], ["crane", "00000"]]]] * 2]
    assert sleep[1][0] == 0 and sleep[1][1] == 6
    assert sleep[1][2][1] == ["", "", "no guess", "<None>"]
    assert sleep[2] == [1, 2, [["crane", "22221"], ["sleep", "00000"]]]


def test_boards_show_changed_secrets_first_and_say_their_marks(page):
    assert [text for text in page.text("h3") if text.isupper()] == ["SLEEP", "CREPT", "CRANE"]
    labels = [a["aria-label"] for a in page.of("div") if a.get("class") == "row"]
    assert "C absent, R absent, A absent, N absent, E elsewhere" in labels
    assert "no guess" in labels and "ZZZZZ" in labels


@pytest.mark.slow
def test_solvers_teacher_and_optimum_are_beside_runs_on_the_original_lists(tmp_path):
    folder = make_run(tmp_path, digests={"words": load_words().digest},
                      algorithm="distill", player="random_consistent_allowed")  # fmt: skip
    page = page_of(folder)
    assert "teacher: random allowed word that fits all clues" in page.text("th")
    assert "optimum (published, all 2,315 answers)" in page.text("th")
    unknown = make_run(tmp_path / "other")
    assert "optimum" not in " ".join(page_of(unknown).text("th"))


def test_a_best_checkpoint_at_the_start_is_called_no_improvement(run):
    write_report(run, "best", BEFORE, step=0)
    prose = page_of(run).prose
    assert "The best checkpoint is step 0, the start" in prose
    assert "this run shows no improvement" in prose


def test_an_interval_around_zero_is_called_undecided(run):
    write_report(run, "best", [AFTER[0], *BEFORE[1:]], step=40)
    assert "The interval contains 0, so whether wins differ is undecided." in page_of(run).prose


def test_without_reports_the_validations_are_compared(run):
    for name in ("start.json", "start_games.jsonl", "best_games.jsonl"):
        (run / name).unlink()
    write_json(run / "summary.json", {"exported_step": 20})
    prose = page_of(run).prose
    assert "% of validation secrets after step 20" in prose
    assert "so this page compares validations" in prose


DAMAGE = {
    "summary.json is missing": lambda run: (run / "summary.json").unlink(),
    "metrics.jsonl is missing": lambda run: (run / "metrics.jsonl").unlink(),
    "start_games.jsonl is missing": lambda run: (run / "start_games.jsonl").unlink(),
    "Not readable: start.json: not JSON": lambda run: (run / "start.json").write_text("{"),
    "start.json: win_rate is out of range": lambda run: write_json(
        run / "start.json", json.loads((run / "start.json").read_text()) | {"win_rate": 7.5}
    ),
    "best_games.jsonl line 1": lambda run: (run / "best_games.jsonl").write_text("x\ny\n"),
    "of 4 of 5 validations": lambda run: StepLog(
        run / "validation_games.jsonl"
    ).truncate_after(5),
    "metrics.jsonl: is a folder": lambda run: (
        (run / "metrics.jsonl").unlink(), (run / "metrics.jsonl").mkdir()
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("said", DAMAGE)
def test_what_a_damaged_folder_lacks_is_named_and_the_rest_is_shown(run, said):
    DAMAGE[said](run)
    page = page_of(run)
    assert said in page.prose and "How it was made" in page.text("h2")
    assert str(run) not in page.prose


def test_a_folder_with_a_manifest_alone_has_a_page(tmp_path):
    write_json(tmp_path / "manifest.json", {"status": 3 * "x", "git": [], "seeds": "none"})
    page = page_of(tmp_path, None)
    assert "This run has no result yet." in page.prose
    assert "The settings cannot be read" in page.prose


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="not a run folder"):
        page_of(tmp_path)


def test_numbers_out_of_all_bounds_are_left_out(run):
    log = StepLog(run / "metrics.jsonl")
    log.append(50, {"val/win_rate": 10**400, "train/games": 1e300})
    log.append(10**400, {f"time/{i}": 1.0 for i in range(500)})
    summary = json.loads((run / "summary.json").read_text())
    odd = {"histogram": {"lost": 10**400, "7" * 99: 1, "3": 2}, "exported_step": 10**400}
    write_json(run / "summary.json", summary | odd | {"seconds_training": 10**400})
    page = page_of(run)
    assert "Curves" in page.text("h2") and "777" not in page.prose


@pytest.mark.slow
def test_the_page_of_many_games_stays_below_a_megabyte(tmp_path):
    words = load_words().answers[10:325]  # without abbey
    many = [(word, ["crane", "slate", "mound", "abbey", "steel", "crept"]) for word in words]
    folder = make_run(tmp_path, before=many, after=many)
    assert len(html_of(folder).encode()) < 1_000_000


def test_every_table_has_a_name_of_its_own_for_screen_readers(html):
    names = [one["aria-label"] for one in Page(html).of("div") if one.get("role") == "region"]
    assert len(names) > 10 and len(set(names)) == len(names)


def test_equal_runs_have_equal_pages(html, run):
    assert html_of(run) == html


def test_the_solvers_file_is_what_the_players_do():
    known = json.loads(FILE.read_text())
    answers = load_words().answers
    for name, guesses in count_guesses(12, ("random_consistent", "entropy")).items():
        digits = dict(zip(answers, map(int, known["guesses"][name]), strict=True))
        assert {secret: digits[secret] for secret in guesses} == guesses
