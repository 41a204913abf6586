"""The page of a study: its tables, its picture, and what a person wrote."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.studies import run_fakes, work
from wordle_rl.__main__ import run
from wordle_rl.commands.judge import judge
from wordle_rl.runs.files import read_json
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONFIG_DIR, ROOT
from wordle_rl.runs.progress import announce
from wordle_rl.sweeps.plan import plan_study
from wordle_rl.sweeps.power import tell_power
from wordle_rl.sweeps.readme import BEGIN, END, UNWRITTEN, write_page
from wordle_rl.sweeps.run import run_study

NODE = {
    "params": {"x": "choice(0.1, 0.9)", "y": "choice(a, b)", "seed": "choice(0, 1)"},
    "question": "Is x good?",
    "confirm_seeds": [7],
    "default": {"x": 0.1, "y": "a"},
    "analysis": {"measure": "wins"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    work(root, **NODE)
    write_page(root / "study")
    return root


def test_a_page_has_its_tables_and_a_picture(root):
    page = root / "study" / "README.md"
    text = page.read_text()
    assert "Is x good?" in text
    assert "| x=0.9 y=a | 2 | 40 | 49.0 ± 0.0 | +" in text
    assert "| winner | 1 | 40 | 49.0 |" in text and "| default | 1 | 40 | 9.0 |" in text
    # once under each table, though every trial has it
    assert text.count("\n- Lineage: fake. word") == 2
    assert all(len(line) <= 100 for line in text.splitlines() if "word word" in line)
    assert [path.name for path in page.parent.glob("*.png")] == ["curves.png"]
    assert "](curves.png)" in text and not re.search(r"\n{3,}", text)


def test_what_a_person_wrote_stays_and_an_index_beside_it_shows_it(root, tmp_path, monkeypatch):
    root = shutil.copytree(root, tmp_path / "sweeps")
    page = root / "study" / "README.md"
    monkeypatch.setattr("wordle_rl.sweeps.readme.save_figure", lambda *_: None)  # the slowest part
    text = page.read_text().replace(UNWRITTEN, "More x, more wins.\n\nBecause.")
    page.write_text(text.replace("Is x good?", "Is x good? (Asked in November.)"))
    (root / "README.md").write_text(f"# Mine\n\n{BEGIN}\n{END}\n\nThe end.\n")
    content = json.loads((record := root / "study" / "study.json").read_text())
    content["effects"][0]["low"] += 1e-13  # as on another machine
    record.write_text(dump := json.dumps(content))
    assert write_page(root / "study").read_text() == page.read_text()
    assert record.read_text() == dump
    assert "More x, more wins.\n\nBecause." in page.read_text()
    assert "(Asked in November.)" in page.read_text()
    text = (root / "README.md").read_text()
    assert text.startswith("# Mine\n") and text.endswith("\nThe end.\n")
    assert "## [study](study/README.md)\n\nMore x, more wins.\n\n![" in text
    assert "| [study](study/README.md) | Is x good? | x=0.1 y=b against x=0.1 y=a: " in text
    page.write_text("No markers.")
    with pytest.raises(ValueError, match="must have the lines"):
        write_page(root / "study")
    assert page.read_text() == "No markers."


def test_a_study_can_be_asked_what_it_can_find(capsys):
    run(["judge", "gen_count", "--power"])
    seeds, power = capsys.readouterr().out.splitlines()
    assert re.match(r"what seeds buy: 2 / 3 / 4 / 6 / 8 find .* the study gen_count vary\)", seeds)
    assert re.match(r"this study: 6 seeds and 5 comparisons find 0\.\d\d\b", power)


@pytest.mark.parametrize(
    ("model", "told"), [("mini", "find a difference"), ("micro", "with micro")]
)
def test_what_seeds_buy_is_told_for_the_model_that_it_was_measured_with(model, told, capsys):
    node = {"name": "mine", "params": {"seed": "choice(0, 1)"}}
    tell_power(plan_study(node, [], lambda _: {"model": {"name": model}}))
    [line] = [ln for ln in capsys.readouterr().out.splitlines() if ln.startswith("what seeds buy")]
    assert told in line and (model == "mini") is bool(re.search(r"0\.\d+ /", line))


def test_a_study_that_takes_long_says_what_it_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("wordle_rl.sweeps.readme.save_figure", lambda *_: time.sleep(2.5))
    monkeypatch.setenv("FAKE", '{"secrets": 40, "steps": 1}')
    waits = iter([2.5])
    with announce("reading the settings"):
        run_fakes(
            tmp_path,
            lambda plan: run_study(plan, lambda _: time.sleep(next(waits, 0)) or ""),
            params={"seed": "choice(0)", "x": "choice(0.1, 0.9)"},
        )
    text = "".join(capsys.readouterr())
    assert re.search(r"checking each arm of the study, \d+ s\n", text)
    assert re.search(r"writing the page of the study, \d+ s\n", text)
    assert "reading the settings" not in text


def test_the_picture_of_a_study_is_written_as_a_print_needs_it(root, tmp_path):
    for ending, prefix in {"svg": b"<?xml", "pdf": b"%PDF"}.items():
        judge(str(root / "study"), figure=(file := tmp_path / f"a.{ending}"))
        assert file.read_bytes().startswith(prefix)
    with pytest.raises(ConfigError, match=r"one of \.svg, \.pdf, \.png, not "):
        judge(str(root / "study"), figure=tmp_path / "a.jpg")


@pytest.mark.parametrize("seeds", ["0", "0, 1, 2"])
def test_settings_without_a_default_end_in_a_verdict_on_page_and_terminal(
    tmp_path, monkeypatch, capsys, seeds
):
    """Won games have two guesses and others seven: 16 secrets of 40 save five guesses each."""
    monkeypatch.setattr("wordle_rl.sweeps.readme.save_figure", lambda *_: None)  # the slowest part
    monkeypatch.setenv("FAKE", '{"secrets": 40, "steps": 1}')
    node: Any = {"params": {"seed": f"choice({seeds})", "x": "choice(0.1, 0.9)"}}
    run_fakes(tmp_path, lambda plan: run_study(plan, lambda _: "its work"), **node)
    out, page = capsys.readouterr().out, (tmp_path / "study" / "README.md").read_text()
    assert "In the first,\nits work\n" in out and "best" not in out
    assert "\nwhat seeds buy: " in out
    assert "\n\nDoes x=0.9 do better than x=0.1?\n\n" in page
    if seeds == "0":
        for text in (out, page):
            assert "one seed: no verdict; seed=0,1,2 gives one" in text
    else:
        [effect] = read_json(tmp_path / "study" / "study.json")["effects"]
        assert effect["name"] == "x=0.9 against x=0.1" and effect["verdict"] == "better"
        assert effect["difference"] == pytest.approx(-2.0) and effect["low"] < -2.0 < effect["high"]
        assert "| x=0.9 against x=0.1 | -2.00 | " in page and "| **better** |" in page
        sentence = r"x=0.9 against x=0.1: -2.00 guesses \(\S+ to \S+, p [=<] \S+, 3 seeds on 40 "
        assert re.search(rf"{sentence}secrets; .*\): better\.", " ".join(out.split()))
        argv = [sys.executable, str(ROOT / "research" / "recompute.py"), str(tmp_path / "study")]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0 and "-2.0000 (" in result.stdout, result.stderr


def test_a_study_keeps_where_parts_of_its_users_own_are(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE", '{"secrets": 2, "steps": 1}')
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path / "own"))
    monkeypatch.setattr("sys.argv", ["train.py", "-m", "reward=phase2,vowel"])
    work(tmp_path, params={"x": "choice(0.1)"})
    command = read_json(tmp_path / "study" / "study.json")["command"]
    assert command == ["train.py", f"--config-dir={tmp_path / 'own'}", "-m", "reward=phase2,vowel"]
