"""What the pages name exists: commands and their settings, modules, make's targets."""

import itertools
import re
import shlex
from collections.abc import Iterator

import pytest
import typer
import yaml

from tests.helpers.configs import composed
from wordle_rl.__main__ import app
from wordle_rl.runs.paths import CONF, ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^ *```\w*\n(.*?)^ *```", re.M | re.S)
_PLACEHOLDER = re.compile(r"<|=$|=latest$|\.\.\.|\$|\|")  # <run>, key=, latest, ..., a choice
# Commands of a study are composed with its stages and workers, which tests/sweeps does.
_STUDY = re.compile(r" -m | hydra\.")


def commands(text: str) -> Iterator[str]:
    """Lines of code blocks, lines that continue joined, and inline code."""
    blocks = "\n".join(_FENCE.findall(text)).replace("\\\n", " ")
    inline = re.findall(r"`([^`]+)`", _FENCE.sub("", text))
    for line in [*blocks.split("\n"), *(code.replace("\n", " ") for code in inline)]:
        yield re.split(r"\s#\s|\s{2,}#", line.strip())[0].strip()


COMMANDS = sorted({command for path in PAGES for command in commands(path.read_text())})


def select(prefix: str) -> list[str]:
    return [command for command in COMMANDS if command.startswith(prefix)]


@pytest.mark.parametrize("command", select("python train.py ") + select("python eval.py "))
def test_settings_on_the_pages_compose(command):
    if _STUDY.search(command):
        study = re.search(r"sweep=(\w+)", command)
        assert study is None or (CONF / "sweep" / f"{study[1]}.yaml").is_file()
        return
    name = "eval" if "eval.py" in command else "config"
    command = command.replace("<hub name or folder>", "some/model")
    settings = shlex.split(command.partition(" --")[0])[2:]
    overrides = [part for part in settings if not _PLACEHOLDER.search(part)]
    if "init_from" in command:
        overrides.append("model=smollm2")  # in place of the run and its model
    # What INSIDE.md adds is built by test_adding.py.
    if "vowel" not in command:
        composed(*overrides, name=name)


def test_arguments_of_wordle_rl_on_the_pages_are_read():
    for command in select("wordle-rl "):
        name, *arguments = shlex.split(re.sub(r"<[^<>]+>|\.\.\.", "x", command))[1:]
        if arguments and not name.startswith("-"):
            typer.main.get_command(app).commands[name].make_context(name, arguments)


def test_the_first_commands_of_the_readme_are_run_for_every_change():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    block = _FENCE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert block is not None
    examples = [command for command in commands(block[0]) if command]
    assert examples[0] == "make demo" and examples[-1] == "make test"
    assert not [command for command in examples if command not in script]


def test_the_keys_that_newcomers_look_up_are_ours():
    page = (ROOT / "docs" / "COMING_FROM.md").read_text(encoding="utf-8")
    table = page.partition("## TRL")[2]
    keys = dict(re.findall(r"^\| `([a-z_.]+)(?:=([\w.]+))?`", table, re.M))
    assert len(keys) > 20
    overrides = [f"{key}={value or 1}" for key, value in keys.items() if key != "data"]
    composed("model=smollm2", *overrides)  # raises for a key that does not exist


def test_commands_scripts_and_targets_on_the_pages_exist():
    words = {word for line in COMMANDS for word in line.split()}
    scripts = {word for word in words if re.match("(benchmarks|examples|research)/", word)}
    assert not [path for path in scripts if not (ROOT / path).exists()]
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    names = {word for command in select("make ") for word in re.split(r"\s&&", command)[0].split()}
    assert {word for word in names if re.fullmatch(r"[a-z0-9-]+", word)} - {"make"} <= targets


def test_every_function_on_the_way_of_a_secret_is_where_the_page_says():
    way = (ROOT / "docs" / "INSIDE.md").read_text(encoding="utf-8").replace("\n   ", "")
    functions = re.findall(r"`([\w/]+\.py)`: `(\w+)`", way)
    assert len(functions) > 15
    for file, name in functions:
        source = (ROOT / "wordle_rl" / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {name}\(", source, re.M), f"{file} has no {name}"


def test_the_citation_has_what_its_format_asks_for_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # schema 1.2.0
    assert all({"name", "family-names"} & author.keys() for author in citation["authors"])
    [version] = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.M)[:1]
    assert citation["version"] == version
    assert str(citation["date-released"].year) in (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_can_be_read_without_seeing_it(path):
    """One title, headings without a gap, a text for each picture, a name for each column."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]
    assert levels.count(1) == 1 == levels[0]
    assert all(next_level <= level + 1 for level, next_level in itertools.pairwise(levels))
    pictures = re.findall(r"<img[^>]*>|!\[[^]]*\]", text)
    assert not [picture for picture in pictures if not re.search(r'alt="[^"]+"|!\[[^]]+', picture)]
    heads = re.findall(r"^(\|.*)\n\| -{3}", text, re.M)
    assert not [head for head in heads if re.search(r"\| +\|", head)]
