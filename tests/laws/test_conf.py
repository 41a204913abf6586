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


def explained() -> dict[str, tuple[Path, str]]:
    """Key -> its file and comment. An option explains the keys that the first one lacks."""
    files = [path for group in GROUPS for path in list_options(group)]
    own = {CONF / f"{name}.yaml" for name in ("config", "eval", "game")}
    first = {STUDY, *own, *(list_options(g)[0] for g in GROUPS)}
    found: dict[str, tuple[Path, str]] = {}
    for path in (*files, *first):
        for key, comment in read_comments(path).items():
            silent = not found.get(key, (path, ""))[1]  # config.yaml repeats keys of its parts
            if silent and (path in first or key.startswith(f"{path.parent.name}.")):
                found[key] = (path, comment)
    return found


def is_number(path: Path, key: str) -> bool:
    """Whether the value of a key in its file is a number."""
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name in key.split(".") if path.parent == CONF else key.split(".")[-1:]:
        node = node.get(name) if isinstance(node, dict) else None
    return isinstance(node, int | float) and not isinstance(node, bool)


def test_every_key_says_what_it_means_and_every_number_its_range():
    keys = explained()
    silent = [key for key, (_, said) in keys.items() if not said]
    numbers = [(key, said) for key, (path, said) in keys.items() if is_number(path, key)]
    assert len(keys) > 100 and len(numbers) > 50
    assert not silent + [f"{key}: {said}" for key, said in numbers if not RANGE.search(said)]


@pytest.mark.parametrize(
    "path", sorted((CONF / "experiment").rglob("*.yaml")), ids=lambda p: p.stem
)
def test_an_experiment_opens_with_its_command_cost_and_result(path: Path):
    header = "\n".join(read_header(path))
    titles = re.findall(r"^(Command|Cost|Result): \S", header, re.M)
    assert titles == ["Command", "Cost", "Result"], header
    name = path.relative_to(CONF / "experiment").with_suffix("").as_posix()
    assert re.search(rf"^Command: (.*\n)*?.*experiment={name}\b", header, re.M), header
