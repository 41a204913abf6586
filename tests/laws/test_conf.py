"""Every choice and every key in conf/ says what it is, because --help is made of the comments."""

import re
from pathlib import Path

import pytest
import yaml

from wordle_rl.commands.help import STUDY, list_options, read_comments, read_header
from wordle_rl.runs.paths import CONF

SETS = ("experiment", "sweep", "hydra")  # their files set keys of other groups
GROUPS = sorted({path.name for path in CONF.iterdir() if path.is_dir()} - {*SETS})
RANGE = re.compile(r"\d\.\.\d|\babove\b|\bbelow\b|\bor more\b|\bpercent\b")


def describe_keys() -> dict[str, tuple[Path, str]]:
    """Key -> its file and comment. An option explains the keys that the first one lacks."""
    files = [path for group in GROUPS for path in list_options(group)]
    main_files = {CONF / f"{name}.yaml" for name in ("config", "eval", "game")}
    top_files = {STUDY, *main_files, *(list_options(g)[0] for g in GROUPS)}
    comments: dict[str, tuple[Path, str]] = {}
    for path in (*files, *top_files):
        for key, comment in read_comments(path).items():
            silent = not comments.get(key, (path, ""))[1]  # config.yaml repeats keys of its parts
            if silent and (path in top_files or key.startswith(f"{path.parent.name}.")):
                comments[key] = (path, comment)
    return comments


def is_number(path: Path, key: str) -> bool:
    """Whether the value of a key in its file is a number."""
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name in key.split(".") if path.parent == CONF else key.split(".")[-1:]:
        node = node.get(name) if isinstance(node, dict) else None
    return isinstance(node, int | float) and not isinstance(node, bool)


def test_every_key_says_what_it_means_and_every_number_its_range():
    keys = describe_keys()
    gaps = [key for key, (_, comment) in keys.items() if not comment]
    numbers = [(key, comment) for key, (path, comment) in keys.items() if is_number(path, key)]
    assert len(keys) > 100 and len(numbers) > 50
    assert not gaps + [f"{key}: {comment}" for key, comment in numbers if not RANGE.search(comment)]


@pytest.mark.parametrize(
    "path", sorted((CONF / "experiment").rglob("*.yaml")), ids=lambda p: p.stem
)
def test_an_experiment_opens_with_its_command_cost_and_result(path: Path):
    header = "\n".join(read_header(path))
    titles = re.findall(r"^(Command|Cost|Result): \S", header, re.M)
    assert titles == ["Command", "Cost", "Result"], header
    name = path.relative_to(CONF / "experiment").with_suffix("").as_posix()
    assert re.search(rf"^Command: (.*\n)*?.*experiment={name}\b", header, re.M), header
