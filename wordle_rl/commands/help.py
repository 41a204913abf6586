"""The page of --help: the choices with their options, and every setting with its comment in conf/.

A setting is explained by the comment behind it, or else by the comment lines right above it.
"""

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from wordle_rl.runs.config import flatten, list_brought
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF, CONFIG_DIR, EVAL_NAME, TRAIN_NAME

STUDY = CONF / "hydra" / "sweeper" / "study.yaml"  # the settings of a study
_WIDTH = 100  # columns at most
_COLUMN = 34  # where the comments of settings begin
_OPTIONS = 18  # where the options of choices begin
_SYSTEM_KEYS = ("_target_", "defaults", "hydra")  # the program's own keys
_HEADS = {
    "config": f"""\
usage: {TRAIN_NAME} [choice=option] [setting=value] ...
       {TRAIN_NAME} resume=<run> ...      continues a run
       {TRAIN_NAME} init_from=<run> ...   starts from a run and its settings
       {TRAIN_NAME} -m sweep=<study> ...  runs a study
       {TRAIN_NAME} debug=true ...        two steps, without a report
       {TRAIN_NAME} --cfg job ...         prints the composed settings
       {TRAIN_NAME} --help <group>        explains a choice; all: everything""",
    "eval": f"""\
usage: {EVAL_NAME} run=<run> [setting=value] ...
       {EVAL_NAME} model=<option> ...
       {EVAL_NAME} player=<name> ...
       {EVAL_NAME} --cfg job ...    prints the composed settings
       {EVAL_NAME} --help <group>   explains a choice; all: everything""",
}
_SHORT_PAGE = {  # what the short page has: choices, and settings
    "config": {
        *("model", "experiment", "algorithm", "reward", "curriculum", "history", "rollout"),
        *("prompt", "num_generations", "backend", "sweep", "model.path", "optim.lr", "seed"),
        *("rollout.groups", "trainer.steps", "sampling.temperature", "backend.threads"),
        *("sampling.grammar", "sampling.beams", "backend.devices", "data.path", "init_from"),
        "resume",
    },
    "eval": {
        *("model", "prompt", "history", "model.path", "run", "player", "checkpoint", "opener"),
        *("samples", "limit", "shots", "words.split", "sampling.temperature", "sampling.grammar"),
        *("sampling.beams", "sampling.repeats", "seed", "json"),
    },
}


def format_help(name: str, cfg: DictConfig) -> str:
    """The page of a command. name: of its config, cfg: composed, with the node hydra."""
    file, picks = CONF / f"{name}.yaml", cfg.hydra.runtime.choices
    values: Any = OmegaConf.to_container(cfg, resolve=False)
    study = {"hydra": {"sweeper": values.pop("hydra")["sweeper"]}}
    groups = {group: text for group, (_, text) in read_defaults(file).items() if "/" not in group}
    lines = [_HEADS[name], "", "Choices, each one word such as model=mini; * is chosen:", ""]
    for group, text in groups.items():
        if not (names := [path.stem for path in list_options(group)]):
            continue  # such as init_from, whose options are runs
        mark = picks.get(group) or str(values.get(group))  # a number, which no option may have set
        options = ", ".join(f"*{name}" if name == mark else name for name in names)
        lines += _row(f"  {group}=", options, _OPTIONS) + _row("", text, _OPTIONS)
        if settings := _list_brought(group, picks.get(group)):
            lines += _row("", f"* brings {' '.join(settings)}", _OPTIONS)
    lines += ["", "Settings, with their values here:", ""]
    lines += _format_settings(values, _collect_comments(file, groups, picks))
    if name == "config":
        lines += ["", "Settings of a study:", "", *_format_settings(study, read_comments(STUDY))]
    return "\n".join(lines)


def format_usual(name: str, cfg: DictConfig) -> str:
    """The page of what people touch: a line or two for each, of at most 40 in all."""
    page, keys = format_help(name, cfg), _SHORT_PAGE[name]
    choices, _, settings = page.removeprefix(_HEADS[name]).partition("\nSettings, ")
    lines = [_HEADS[name], "Choices, * is chosen:"]
    for group, options in re.findall(r"^  (\w+)=\s+((?:.*,\n +)*.*)", choices, re.M):
        if group in keys:
            lines += _row(f"  {group}=", " ".join(options.split()), _OPTIONS)
    lines.append("Settings, with their values here:")
    for key, row in re.findall(r"^  ([\w.]+)(=.*(?:\n {3,}.*)*)", settings, re.M):
        if key in keys:
            value, *words = row.split()
            meaning = re.split(r"[.:;] |\.$", " ".join(words))[0]
            head = f"  {key}{value}".ljust(_COLUMN - 1) + " "
            lines.append(head + textwrap.shorten(meaning, _width() - len(head), placeholder=" ..."))
    return "\n".join(lines)


def _list_brought(group: str, option: str | None) -> list[str]:
    """What an option of a group sets in other groups, as on the command line."""
    return [
        f"{key}={value}"
        for key, value in list_brought(group, option).items()
        if key.split(".")[0] != group and value != "???"
    ]


def format_group(name: str, group: str, cfg: DictConfig) -> str:
    """The part of a command's page about a group: what its options are, and its settings."""
    choice, files = cfg.hydra.runtime.choices.get(group) or str(cfg.get(group)), list_options(group)
    page = format_help(name, cfg).partition("\nSettings, ")[2]
    lines = re.findall(rf"^  {re.escape(group)}\b[.=].*(?:\n {{3,}}.*)*", page, re.M)
    for file in reversed(files):
        title = next(line for line in read_header(file) if not line.startswith("@package"))
        mark = "*" if file.stem == choice else ""
        lines[:0] = _row(f"  {mark}{file.stem}", title, _OPTIONS)
    if not lines:
        raise ConfigError(f"--help {group}: no such choice or group of settings, see --help")
    return "\n".join([f"{group}=<option>" if files else f"{group}: settings", "", *lines])


def list_options(group: str) -> list[Path]:
    """The files of a group: the one that config.yaml chooses, the rest by name, own ones last."""
    default = read_defaults(CONF / "config.yaml").get(group, ("", ""))[0]
    folder = Path(os.environ.get(CONFIG_DIR, CONF))
    files = {*(CONF / group).glob("*.yaml"), *(folder / group).glob("*.yaml")}
    order = {
        file: (file.parents[1] != CONF, file.stem != default, file.stem.rjust(2), file)
        for file in files
    }
    return sorted(files, key=order.__getitem__)


def read_defaults(file: Path) -> dict[str, tuple[str, str]]:
    """Group -> option and comment of a file's defaults list."""
    entry = re.compile(r'^  - ([\w/]+): "?(\w+)"?(?:  # (.*))?$', re.M)
    entries = entry.findall(file.read_text(encoding="utf-8"))
    return {group: (option, meaning) for group, option, meaning in entries}


def read_header(path: Path) -> list[str]:
    """The comment lines at the top of a file; the first one says what the option is."""
    top = takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    return [line.removeprefix("#").strip() for line in top]


def read_comments(path: Path, conf: Path = CONF) -> dict[str, str]:
    """Setting, as on the command line -> its comment, which may be empty.

    A mapping in braces is a single setting. Any other one is listed only with a comment.
    """
    text, header = path.read_text(encoding="utf-8"), read_header(path)
    prefix = path.parent.relative_to(conf).as_posix().replace("/", ".").strip(".")
    if header and header[0].startswith("@package "):
        prefix = header[0].removeprefix("@package ").replace("_global_", "")
    root = yaml.compose(text)
    lines = ["" if n < len(header) else line for n, line in enumerate(text.splitlines())]
    if not root:
        return {}
    return dict(_comments(root, lines, f"{prefix}." if prefix else ""))


def _comments(node: yaml.Node, lines: list[str], prefix: str) -> Iterator[tuple[str, str]]:
    assert isinstance(node, yaml.MappingNode)
    for name, value in node.value:
        if name.value in _SYSTEM_KEYS:
            continue
        first, end = name.start_mark.line, value.end_mark
        group = isinstance(value, yaml.MappingNode) and not value.flow_style
        rest = lines[first].partition(":")[2] if group else lines[end.line][end.column :]
        match = re.fullmatch(r"\s*# *(.+)", rest)
        block = takewhile(lambda line: line.lstrip().startswith("#"), reversed(lines[:first]))
        text = " ".join(line.strip("# ") for line in reversed([*block]))
        if (meaning := match[1] if match else text) or not group:
            yield prefix + name.value, meaning
        if group:
            yield from _comments(value, lines, f"{prefix}{name.value}.")


def _collect_comments(
    file: Path, groups: Iterable[str], picks: Mapping[str, str | None]
) -> dict[str, str]:
    """What conf/ says about each setting.

    A command's own files speak first, then the chosen options. Other options speak of settings of
    their group alone, those with most comments first.
    """
    sources, others = [read_comments(file), read_comments(CONF / "game.yaml")], []
    for group in groups:
        for path in list_options(group):
            comments = read_comments(path, path.parents[1])
            if path.stem == picks.get(group):
                sources.append(comments)
            else:
                others.append({k: v for k, v in comments.items() if k.startswith(f"{group}.")})
    texts: dict[str, str] = {}
    for comments in (*sources, *sorted(others, key=lambda part: -sum(map(bool, part.values())))):
        texts = {key: text for key, text in comments.items() if text} | texts
    return texts


def _format_settings(values: Mapping[str, Any], comments: Mapping[str, str]) -> Iterator[str]:
    texts = dict(comments)  # what stands above a mapping is shown once, beside its first setting
    for key, value in flatten(values).items():
        if not key.endswith("_target_"):
            parents = [texts.pop(key[: dot.start()], "") for dot in re.finditer(r"\.", key)]
            meaning = texts.get(key) or " ".join(filter(None, parents))
            yield from _row(f"  {key}=" + value.replace('"', ""), meaning, _COLUMN)


def _width() -> int:
    return min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)


def _row(head: str, text: str, column: int) -> list[str]:
    """Lines with a text beside its head, or below a long one."""

    def wrap(line: str, indent: int) -> list[str]:
        options = {"subsequent_indent": " " * indent, "break_on_hyphens": False}
        return textwrap.wrap(line, _width(), **options)

    if len(head) < column:
        return wrap(f"{head:<{column}}{text}", column) if head or text else []
    return wrap(head, 4) + wrap(f"{'':<{column}}{text}", column)
