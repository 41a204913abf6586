"""Writes docs/CHOICES.md from the comments in conf/: python -m wordle_rl.choices [--check]

The first comment line of a file says what the option is. A key is explained by the comment behind
it, or else by the comment lines right above it. --check compares and writes nothing.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.paths import CONF, ROOT
from wordle_rl.written_page import keep_page

PAGE = ROOT / "docs" / "CHOICES.md"
STUDIES = "hydra/sweeper"  # the group whose keys are those of a study
_ORDER = (  # of the sections; other groups follow
    *("model", "algorithm", "reward", "curriculum", "rollout", "num_generations", "history"),
    *("prompt", "optim", "sampling", "rules", "words", "backend", "vllm", "trainer", "logger"),
)
_LAST = ("experiment", "sweep")  # sets of choices: their files repeat keys of other groups
_UNEXPLAINED = ("_target_", "defaults", "hydra")  # the program's own keys
_INTRO = """\
# Choices

<!-- Written by `make choices` from the comments in conf/. Edit those, not this page. -->

Each section is a folder in `conf/`. A run takes one option of each: `python train.py model=mini
reward=win_only`. Any key can be changed on top: `python train.py optim.lr=1e-4`. Each key is
shown with its value in the first option of the section. `null` means none.
"""


@dataclass(frozen=True, kw_only=True)
class Key:
    """One setting of a config file."""

    name: str  # as on the command line
    value: str  # as in the file; empty for a group of settings
    meaning: str  # its comment; empty where it has none
    required: bool  # whether it must have a comment: a group of settings need not


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """What the comments of one file in conf/ say."""

    option: str
    summary: str  # the first comment line
    header: str  # all comment lines at the top
    keys: tuple[Key, ...]


def read_config(path: Path, conf: Path = CONF) -> ConfigFile:
    """Read the comments of a config file of the folder conf."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    header = [line.removeprefix("#").strip() for line in _top_comment(lines)]
    package = [line for line in header if line.startswith("@package ")]
    said = [line for line in header if line not in package]
    group = path.parent.relative_to(conf).as_posix()
    prefix = "" if group == "." else group.replace("/", ".")
    if package:
        prefix = package[0].removeprefix("@package ").replace("_global_", "")
    root = yaml.compose(text)
    keys = _keys(root, lines, f"{prefix}." if prefix else "", len(header)) if root else ()
    return ConfigFile(
        option=path.stem, summary=said[0] if said else "", header="\n".join(said), keys=tuple(keys)
    )


def groups(conf: Path = CONF) -> list[str]:
    """The config groups in the order of the page, hydra's own left out."""
    found = {path.name for path in conf.iterdir() if path.is_dir()} - {"hydra", *_LAST}
    known = [group for group in _ORDER if group in found]
    return [*known, *sorted(found - set(known)), *_LAST]


def options(group: str, conf: Path = CONF) -> list[ConfigFile]:
    """The options of a group, the first file at the front.

    That is the option which config.yaml chooses, or else the first in the alphabet.
    """
    files = [read_config(path, conf) for path in sorted((conf / group).glob("*.yaml"))]
    default = defaults(conf / "config.yaml").get(group, ("", ""))[0]
    number = {file.option: int(file.option) for file in files if file.option.isdigit()}
    files.sort(key=lambda file: (file.option != default, number.get(file.option, 0), file.option))
    return files


def defaults(file: Path) -> dict[str, tuple[str, str]]:
    """Group -> option and comment of a file's defaults list."""
    entry = re.compile(r'^  - ([\w/]+): "?(\w+)"?(?:  # (.*))?$', re.M)
    found = entry.findall(file.read_text(encoding="utf-8"))
    return {group: (option, meaning) for group, option, meaning in found}


def own_keys(group: str, files: Sequence[ConfigFile]) -> Iterator[tuple[ConfigFile, Key]]:
    """The keys to explain: all of the first file, and keys that only other options have."""
    known: set[str] = set()
    for number, file in enumerate(files):
        for key in file.keys:
            if key.name not in known and (number == 0 or key.name.startswith(f"{group}.")):
                known.add(key.name)
                yield file, key


def page(conf: Path = CONF) -> str:
    """The whole of docs/CHOICES.md."""
    sections = [_INTRO, *(_section(group, conf) for group in groups(conf))]
    study = options(STUDIES, conf)
    sections.append(
        "## Keys of a study\n\n" + study[0].summary + "\n\n" + _key_list(STUDIES, study)
    )
    for name, command in (("config", "train.py"), ("eval", "eval.py")):
        file = read_config(conf / f"{name}.yaml", conf)
        sections.append(f"## Keys of {command} itself\n\n" + _key_list("", [file]))
    return "\n".join(sections)


def _section(group: str, conf: Path) -> str:
    files = options(group, conf)
    default, meaning = defaults(conf / "config.yaml").get(group, ("", ""))
    reports = defaults(conf / "eval.yaml").get(group, (default, ""))[0]
    lines = []
    for file in files:
        question = [key.value for key in file.keys if key.name == "hydra.sweeper.question"]
        mark = " (default)" * (file.option == default)
        mark += " (default of eval.py)" * (file.option == reports != default)
        lines.append(_item(f"`{file.option}`{mark}", question[0] if question else file.summary))
    text = f"## {group}=\n\n" + (f"{meaning}\n\n" if meaning else "") + "\n".join(lines) + "\n"
    return (
        text if group in _LAST or not files else text + _key_list(group, files, title="\nKeys:\n\n")
    )


def _key_list(group: str, files: Sequence[ConfigFile], *, title: str = "") -> str:
    lines = []
    for file, key in own_keys(group, files):
        value = "" if not key.value else ": required" if key.value == "???" else f" = {key.value}"
        only = "" if file is files[0] else f" ({group}={file.option})"
        if key.meaning:
            lines.append(_item(f"`{key.name}{value}`{only}", key.meaning))
    return title + "\n".join(lines) + "\n" if lines else ""


def _item(head: str, text: str) -> str:
    # Code stays on one line, and < outside it is no HTML.
    pieces = re.split(r"(`[^`]*`)", f"- {head}: {text}")
    pieces[::2] = [piece.replace("<", "\\<") for piece in pieces[::2]]
    joined = "".join(piece.replace(" ", "\0") if piece[:1] == "`" else piece for piece in pieces)
    wrapped = textwrap.wrap(
        joined, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapped).replace("\0", " ")


def _top_comment(lines: Sequence[str]) -> list[str]:
    found = []
    for line in lines:
        if not line.startswith("#"):
            break
        found.append(line)
    return found


def _keys(node: yaml.Node, lines: list[str], prefix: str, top: int) -> Iterator[Key]:
    """The settings of a mapping; one in braces is a single setting. top: lines of the header."""
    assert isinstance(node, yaml.MappingNode)
    for name, value in node.value:
        if name.value in _UNEXPLAINED:
            continue
        first, end = name.start_mark.line, value.end_mark
        group = isinstance(value, yaml.MappingNode) and not value.flow_style
        rest = lines[first].partition(":")[2] if group else lines[end.line][end.column :]
        behind = re.fullmatch(r"\s*# *(.+)", rest)
        meaning = behind[1] if behind else _above(lines[top:first])
        text = "" if group else _text(value, lines)
        key = Key(name=prefix + name.value, value=text, meaning=meaning, required=not group)
        if meaning or not group:
            yield key
        if group:
            yield from _keys(value, lines, f"{prefix}{name.value}.", top)


def _text(value: yaml.Node, lines: list[str]) -> str:
    """A value as it is written, or as it reads where it is in quotes; classes are left out."""
    if isinstance(value, yaml.ScalarNode) and value.style:
        return value.value or '""'
    start, end = value.start_mark, value.end_mark
    rows = lines[start.line : end.line + 1]
    rows[-1] = rows[-1][: end.column]
    rows[0] = rows[0][start.column :]
    return re.sub(r"_target_: [\w.]+(, )?", "", " ".join(row.strip() for row in rows))


def _above(lines: Sequence[str]) -> str:
    """The comment lines at the end of these lines, as one text."""
    found = []
    for line in reversed(lines):
        if not line.lstrip().startswith("#"):
            break
        found.append(line.strip().removeprefix("#").strip())
    return " ".join(reversed(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, 1 when --check finds a difference."""
    return keep_page(arguments, "choices", PAGE, page())


if __name__ == "__main__":
    run_plain(main)
