"""The language of prose, comments and docstrings: phrases that read as if translated are refused.

Each message names file and line. What a pattern cannot see, such as a sentence that has to be read
twice, is for people. Strings of the code are not read, since many hold data.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT

PHRASES = {
    r"that of": "name the thing again",
    r"those that": "name the things",
    r"drawn after": "say what was drawn and when",
    r"(?:is|are|was|were) told": "say what happens: 'is printed', 'knows'",
    r"stands": "things do not stand: 'is', 'appears'",
    r"lies": "things do not lie: 'is'",
    r"goes on": "'continues'",
}
PATTERN = re.compile(
    "|".join(rf"(?P<p{i}>\b{phrase}\b)" for i, phrase in enumerate(PHRASES)).replace(" ", r"\s+"),
    re.I,
)
ADVICE = list(PHRASES.values())
SEMICOLONS = re.compile(r";(?:[^.;:?!]|[.:](?!\s))*;")  # two of them in one sentence
COLUMNS, WORDS = 100, 15  # of a line of Markdown, and of a table's cell
_NEXT = re.compile(r"\n\s*(?:\n|[-*] |\d+\. )")  # the next paragraph or point of a list
_FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
_CODE = re.compile(r"`[^`\n]+(?:\n[^`\n]+)?`")
_LINK_TARGET = re.compile(r"\]\([^)\s]+\)")
_ONLY_LINKS = re.compile(r"\s*!?\[[^\]]*\]\([^)]*\)[.,]?")

Fault = tuple[int, str]  # line and what is wrong
Passage = tuple[int, str]  # first line and text


def pages() -> list[Path]:
    """The Markdown that people wrote or that a command makes for them."""
    folders = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("sweeps/**/README.md")]
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(folders)]


def without_code(text: str) -> str:
    """The same lines without code and without the targets of links."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "_", found[0])

    return _LINK_TARGET.sub(blank, _CODE.sub(blank, _FENCE.sub(blank, text)))


def faults_of_passage(passage: Passage) -> Iterator[Fault]:
    first, text = passage
    for found in PATTERN.finditer(text):
        advice = ADVICE[int((found.lastgroup or "p0")[1:])]
        line = first + text.count("\n", 0, found.start())
        yield line, f"'{' '.join(found[0].split())}' ({advice})"
    for found in SEMICOLONS.finditer(text):
        if not _NEXT.search(found[0]):
            line = first + text.count("\n", 0, found.start())
            yield line, "a chain of semicolons (one idea a sentence)"


def faults_of_page(text: str) -> list[Fault]:
    prose = without_code(text)
    # A row of a table is no sentence: its cells are looked at one by one.
    lines = ["" if line.startswith("|") else line for line in prose.split("\n")]
    faults = list(faults_of_passage((1, "\n".join(lines))))
    # Code is as wide as code may be; a row cannot be wrapped, nor can a link.
    whole = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text).split("\n")
    for number, (line, shown) in enumerate(zip(whole, prose.split("\n"), strict=True), 1):
        if line.startswith("|"):
            for cell in line.strip("| ").split(" | "):
                faults += [(number, why) for _, why in faults_of_passage((1, without_code(cell)))]
                if len(cell.split()) > WORDS:
                    faults.append((number, f"a cell of {len(cell.split())} words: {cell[:40]}..."))
        elif len(line) > COLUMNS and not _ONLY_LINKS.fullmatch(line):
            faults.append((number, f"{len(line)} columns: {shown[:40]}..."))
    return faults


def comments(source: str) -> Iterator[Passage]:
    """Comments of Python; whole-line comments that follow each other are one passage."""
    found: list[tuple[int, str, bool]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.strip().startswith("#")
            found.append((token.start[0], token.string.lstrip("#"), alone))
    yield from joined(found)


def yaml_comments(source: str) -> Iterator[Passage]:
    """Comments of YAML, in which no value of ours has a blank before a #."""
    found = []
    for number, line in enumerate(source.split("\n"), 1):
        before, mark, comment = f" {line}".partition(" #")
        if mark:
            found.append((number, comment, not before.strip()))
    yield from joined(found)


def joined(comments: list[tuple[int, str, bool]]) -> Iterator[Passage]:
    """Passages of (line, comment, whether it has the line to itself)."""
    passages: list[tuple[int, list[str]]] = []
    open_line = None  # the line whose comment would belong to the last passage
    for number, text, alone in comments:
        if alone and number == open_line:
            passages[-1][1].append(text)
        else:
            passages.append((number, [text]))
        open_line = number + 1 if alone else None
    for first, texts in passages:
        yield first, "\n".join(texts)


def docstrings(source: str) -> Iterator[Passage]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, holders) and ast.get_docstring(node, clean=False) is not None:
            [statement, *_] = node.body
            yield statement.lineno, ast.get_docstring(node, clean=False) or ""


def faults_of_passages(passages: Iterator[Passage]) -> list[Fault]:
    return [
        fault for line, text in passages for fault in faults_of_passage((line, without_code(text)))
    ]


def report(path: Path, faults: list[Fault]) -> list[str]:
    return [f"{path.relative_to(ROOT)} line {line}: {why}" for line, why in sorted(faults)]


ROOMS = sorted({path.parent for path in (ROOT / "wordle_rl").rglob("*.py")})
GROUPS = sorted({path.parent for path in (ROOT / "conf").rglob("*.yaml")})


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_are_in_plain_english(path):
    text = path.read_text(encoding="utf-8")
    if path == ROOT / "docs" / "LOG.md":
        text = re.split(r"^## \d{4}-", text, maxsplit=1, flags=re.M)[0]  # entries are history
    found = report(path, faults_of_page(text))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", ROOMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_and_comments_are_in_plain_english(folder):
    found = []
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        faults = faults_of_passages(docstrings(source)) + faults_of_passages(comments(source))
        found += report(path, faults)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", GROUPS, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_of_the_configs_are_in_plain_english(folder):
    found = []
    for path in sorted(folder.glob("*.yaml")):
        faults = faults_of_passages(yaml_comments(path.read_text(encoding="utf-8")))
        found += report(path, faults)
    assert not found, "\n".join(found)


def test_readme_is_a_first_page():
    assert (ROOT / "README.md").stat().st_size < 9000


# -- the checks themselves ------------------------------------------------------------------------

REFUSED = {
    "Its rate is\nthat of the start.": (2, "that of"),
    "one line\nThose that were lost count.": (2, "Those that"),
    "The model is\ntold the clues.": (1, "is told"),
    "The file lies\nthere.": (1, "lies"),
    "a\nb stands": (2, "stands"),
    "the run goes\non": (1, "goes on"),
    "what it was drawn after": (1, "drawn after"),
    "One idea; a second one;\na third.": (1, "semicolons"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_each_phrase_is_found_in_every_kind_of_prose(text):
    line, why = REFUSED[text]
    code = f'"""Doc."""\n\n\ndef f():\n    """{text}"""\n'
    commented = "x = 1\n" + "".join(f"# {part}\n" for part in text.split("\n"))
    for faults, offset in (
        (faults_of_page(f"# Title\n\n{text}\n"), 2),
        (faults_of_passages(docstrings(code)), 4),
        (faults_of_passages(comments(commented)), 1),
        (faults_of_passages(yaml_comments(commented)), 1),
    ):
        [(found, said)] = faults
        assert found == line + offset
        assert why in said


def test_code_links_and_other_words_are_left_alone():
    fine = [
        "Write `that of` or `a; b; c` as code; it is no prose.",
        "See [the page](that-of-those-that.md#lies).",
        "```\nthat of; those that; lies\n" + "a" * 120 + "\n```",
        "He understands it. Families do too. It is retold.",
        "First a; then b. Then c; then d.",
        "- one; two\n- three; four\n\nfive; six",
        "| key | " + "word " * WORDS + "|",
        f"[a link]({'x' * 120})",
    ]
    for text in fine:
        assert faults_of_page(text) == []


def test_wide_lines_and_long_cells_are_found():
    assert faults_of_page("\n" + "a" * 101)[0][0] == 2
    long = "word " * (WORDS + 1)
    [(line, why)] = faults_of_page(f"| a |\n| --- |\n| b | {long}|")
    assert line == 3 and "16 words" in why
    assert faults_of_page("| a | that of |")[0][1].startswith("'that of'")


def test_a_comment_behind_code_is_no_part_of_the_next_one():
    source = "x = 1  # is that\ny = 2  # of all\n# one\n# two\n"
    assert [line for line, _ in comments(source)] == [1, 2, 3]
    assert faults_of_passages(comments(source)) == []
