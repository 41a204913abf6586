"""Every option and every key in conf/ says what it is, and docs/CHOICES.md repeats it.

The first file of a group is the option that config.yaml chooses, or else the first in the alphabet.
It explains its keys; another option explains only those that the first one lacks. Files of
experiments and studies set keys of other groups and name none of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wordle_rl import choices
from wordle_rl.choices import STUDIES, Key, own_keys, read_config
from wordle_rl.runs.paths import CONF

GROUPS = choices.groups()
ALONE = ("config", "eval")  # files in no group
RANGE = re.compile(r"\d\.\.\d|\babove\b|\bbelow\b|\bor more\b|\bpercent\b")
SENTENCE = re.compile(r"\S.{10,97}\.")
MOST_WORDS = 40  # of a comment: a longer one belongs in docs/
REPEATED = ("sweep", STUDIES)  # keys of study.yaml


def explained() -> Iterator[tuple[str, Key]]:
    """The place of each key that must have a comment, and the key."""
    for group in (*(g for g in GROUPS if g not in REPEATED), STUDIES):
        for file, key in own_keys(group, choices.options(group)):
            yield f"conf/{group}/{file.option}.yaml", key
    for name in ALONE:
        for key in read_config(CONF / f"{name}.yaml").keys:
            yield f"conf/{name}.yaml", key


KEYS = [(place, key) for place, key in explained() if key.required]


def test_every_key_says_what_it_means():
    assert len(KEYS) > 100
    silent = [f"{place}: {key.name} needs a comment" for place, key in KEYS if not key.meaning]
    assert not silent, "\n".join(silent)


def test_every_number_says_its_range():
    numbers = [(place, key) for place, key in KEYS if re.fullmatch(r"-?[\d.]+(e-?\d+)?", key.value)]
    assert len(numbers) > 50
    without = [f"{p}: {k.name}: {k.meaning}" for p, k in numbers if not RANGE.search(k.meaning)]
    assert not without, "\n".join(without)


def test_every_comment_is_made_of_short_sentences():
    wrong = [
        f"{place}: {key.name}: {key.meaning}"
        for place, key in KEYS
        if not key.meaning.endswith(".") or len(key.meaning.split()) > MOST_WORDS
    ]
    assert not wrong, "\n".join(wrong)


def test_the_first_comment_line_of_a_file_is_a_sentence():
    files = [path for path in CONF.rglob("*.yaml") if path.parent.name != "sweep"]
    assert len(files) > 60
    said = {path.relative_to(CONF): read_config(path).summary for path in sorted(files)}
    wrong = [f"conf/{p}: {text!r}" for p, text in said.items() if not SENTENCE.fullmatch(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda p: p.stem)
def test_an_experiment_opens_with_its_command_cost_and_result(path: Path):
    header = read_config(path).header
    titles = re.findall(r"^(Command|Cost|Result): \S", header, re.M)
    assert titles == ["Command", "Cost", "Result"], header
    assert re.search(rf"^Command: (.*\n)*?.*experiment={path.stem}\b", header, re.M), header


@pytest.mark.parametrize("name", ALONE)
def test_every_choice_of_the_commands_says_what_it_is_about(name):
    listed = choices.defaults(CONF / f"{name}.yaml")
    assert len(listed) > 5
    about = choices.defaults(CONF / "config.yaml")
    assert not [group for group in listed if not about[group][1]]


def test_the_page_of_choices_is_up_to_date(capsys):
    code = choices.main(["--check"])
    assert code == 0, capsys.readouterr().out


def test_an_outdated_page_is_told_with_the_way_to_mend_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(choices, "PAGE", tmp_path / "CHOICES.md")
    assert choices.main(["--check"]) == 1
    assert "out of date: run make choices" in capsys.readouterr().out
    assert choices.main([]) == 0 and choices.main(["--check"]) == 0
    page = (tmp_path / "CHOICES.md").read_text(encoding="utf-8")
    (tmp_path / "CHOICES.md").write_text(page.replace("optim.lr", "optim.rate"), encoding="utf-8")
    assert choices.main(["--check"]) == 1


FILE = """\
# @package _global_
# What it is.
# More of it.
first: 1
defaults: [none]
mine:
  _target_: wordle_rl.some.Class
  behind: "a # b"  # Behind the key.
  # Above the key,
  # in two lines.
  above: {_target_: wordle_rl.some.Class, weight: 2}
  silent: null
"""


def test_comments_are_found_behind_a_key_or_above_it_but_never_in_the_header(tmp_path):
    (tmp_path / "group").mkdir()
    path = tmp_path / "group" / "option.yaml"
    path.write_text(FILE)
    file = read_config(path, tmp_path)
    assert (file.option, file.summary) == ("option", "What it is.")
    assert [(key.name, key.value, key.meaning) for key in file.keys] == [
        ("first", "1", ""),
        ("mine.behind", "a # b", "Behind the key."),
        ("mine.above", "{weight: 2}", "Above the key, in two lines."),
        ("mine.silent", "null", ""),
    ]
    path.write_text(FILE.replace("_global_", "other"))
    assert read_config(path, tmp_path).keys[0].name == "other.first"
    path.write_text(FILE.partition("\n")[2])
    assert read_config(path, tmp_path).keys[0].name == "group.first"
