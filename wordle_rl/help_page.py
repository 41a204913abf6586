"""The page of --help: the choices with their options, and every setting with its comment in conf/.

At most 100 columns wide, and as wide as a narrower terminal.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from wordle_rl.choices import STUDIES, ConfigFile, defaults, options, read_config
from wordle_rl.runs.paths import CONF, EVAL, TRAIN

_WIDTH = 100  # columns at most
_COLUMN = 34  # where the comments of settings begin
_OPTIONS = 18  # where the options of choices begin
_HEADS = {
    "config": f"""\
usage: {TRAIN} [choice=option] [setting=value] ...
       {TRAIN} resume=<run> ...      continues a run
       {TRAIN} init_from=<run> ...   starts from the model of a run
       {TRAIN} -m sweep=<study> ...  runs a study
       {TRAIN} --cfg job ...         prints the composed settings""",
    "eval": f"""\
usage: {EVAL} run=<run> [setting=value] ...
       {EVAL} model=<option> ...
       {EVAL} player=<name> ...
       {EVAL} --cfg job ...    prints the composed settings""",
}


def format_help(name: str, cfg: DictConfig, chosen: Mapping[str, str | None]) -> str:
    """The page of a command. name: of its config. cfg: as composed. chosen: group -> option."""
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
    file = CONF / f"{name}.yaml"
    listed = {group: said for group, (_, said) in defaults(file).items() if "/" not in group}
    lines = [_HEADS[name], "", "Choices, each one word such as model=mini; * is chosen:", ""]
    files = {group: options(group) for group in listed}
    for group, said in listed.items():
        names = [file.option for file in files[group]]
        lines += _format_choice(f"{group}=", said, names, chosen.get(group), width)
    comments = _read_comments(name, files, chosen)
    lines += ["", "Settings, with their values here:", ""]
    values: Any = OmegaConf.to_container(cfg, resolve=False)
    for key, value in _flatten(values):
        lines += _format_setting(key, value, comments.get(key, ""), width)
    lines += ["", f"The settings of a study begin with {STUDIES.replace('/', '.')}."]
    return "\n".join(lines[:-2] if name == "eval" else lines)


def _format_choice(
    key: str, said: str, names: Sequence[str], chosen: str | None, width: int
) -> Iterator[str]:
    marked = [f"*{name}" if name == chosen else name for name in names]
    text = f"  {key:<{_OPTIONS - 2}}{', '.join(marked)}"
    yield from _wrap(text, _OPTIONS, width)
    if said:
        yield from _wrap(f"{'':<{_OPTIONS}}{said}", _OPTIONS, width)


def _format_setting(key: str, value: Any, comment: str, width: int) -> Iterator[str]:
    """A setting as it is written on the command line, its comment beside it or below it."""
    head = f"  {key}={_format_value(value)}"
    if len(head) < _COLUMN:
        yield from _wrap(f"{head:<{_COLUMN}}{comment}", _COLUMN, width)
        return
    yield from _wrap(head, 4, width)
    if comment:
        yield from _wrap(f"{'':<{_COLUMN}}{comment}", _COLUMN, width)


def _wrap(text: str, indent: int, width: int) -> list[str]:
    lines = textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_on_hyphens=False, drop_whitespace=True
    )
    return [line.rstrip() for line in lines]


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value).replace("'", "") if isinstance(value, list) else str(value)


def _flatten(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a composed config, its classes left out."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        elif key != "_target_":
            yield f"{prefix}{key}", value


def _read_comments(
    name: str, files: Mapping[str, Sequence[ConfigFile]], chosen: Mapping[str, str | None]
) -> dict[str, str]:
    """What the files of conf/ say about each setting, the chosen options first."""
    said: dict[str, str] = {}
    for group, listed in files.items():
        ordered = sorted(listed, key=lambda file: file.option != chosen.get(group))
        for key in (key for file in ordered for key in file.keys if key.meaning):
            said.setdefault(key.name, key.meaning)
    for key in read_config(CONF / f"{name}.yaml").keys:
        said.setdefault(key.name, key.meaning)
    return said
