"""The page of --help: the choices with their options, and every setting with its comment in conf/.

A setting is explained by the comment behind it, or else by the comment lines right above it.
"""

import os
import re
import shutil
import textwrap
from collections.abc import Iterator
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from wordle_rl.runs.config import flatten, list_brought, read_defaults
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import CONF, CONFIG_DIR, EVAL_NAME, TRAIN_NAME

STUDY = CONF / "hydra" / "sweeper" / "study.yaml"  # the settings of a study
_WIDTH = 100  # columns at most
_COLUMN = 34  # where the comments of settings begin
_OPTIONS = 18  # where the options of choices begin
# The comment behind a value, or behind the key of a group; and the lines right above a key.
_BEHIND = re.compile(r":? *# *(.+)")
_ABOVE = re.compile(r"((?:^ *#.*\n)*) *\Z", re.M)
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
    lines = [_HEADS[name], "", "Choices, each one word such as model=mini; * is chosen:", ""]
    for group, (options, *notes) in _describe_choices(name, cfg):
        lines += _row(f"  {group}=", options, _OPTIONS)
        for note in notes:
            lines += _row("", note, _OPTIONS)
    settings = _describe_settings(name, cfg)
    for is_study, items in groupby(settings, lambda item: item[0].startswith("hydra.")):
        title = "Settings of a study:" if is_study else "Settings, with their values here:"
        lines += ["", title, ""]
        for setting, meaning in items:
            lines += _row(f"  {setting}", meaning, _COLUMN)
    return "\n".join(lines)


def format_usual(name: str, cfg: DictConfig) -> str:
    """The page of what people touch: a line or two for each, of at most 40 in all."""
    lines, keys = [_HEADS[name], "Choices, * is chosen:"], _SHORT_PAGE[name]
    for group, (options, *_) in _describe_choices(name, cfg):
        if group in keys:
            lines += _row(f"  {group}=", options, _OPTIONS)
    lines.append("Settings, with their values here:")
    for setting, meaning in _describe_settings(name, cfg):
        if setting.partition("=")[0] in keys:
            head = f"  {setting}".ljust(_COLUMN - 1) + " "
            text = re.split(r"[.:;] |\.$", meaning)[0]
            lines.append(head + textwrap.shorten(text, _width() - len(head), placeholder=" ..."))
    return "\n".join(lines)


def format_group(name: str, group: str, cfg: DictConfig) -> str:
    """The part of a command's page about a group: what its options are, and its settings."""
    choice, files = cfg.hydra.runtime.choices.get(group) or str(cfg.get(group)), list_options(group)
    lines = []
    for file in files:
        title = next(line for line in read_header(file) if not line.startswith("@package"))
        mark = "*" if file.stem == choice else ""
        lines += _row(f"  {mark}{file.stem}", title, _OPTIONS)
    for setting, meaning in _describe_settings(name, cfg):
        if setting.startswith((f"{group}.", f"{group}=")):
            lines += _row(f"  {setting}", meaning, _COLUMN)
    if not lines:
        raise ConfigError(f"--help {group}: no such choice or group of settings, see --help")
    return "\n".join([f"{group}=<option>" if files else f"{group}: settings", "", *lines])


def _describe_choices(name: str, cfg: DictConfig) -> Iterator[tuple[str, list[str]]]:
    """Each group with its options, what it is, and what its chosen option sets in other groups."""
    picks = cfg.hydra.runtime.choices
    for group, (_, meaning) in read_defaults(CONF / f"{name}.yaml").items():
        mark = picks.get(group) or str(cfg.get(group))  # a number, which no option may have set
        names = [file.stem for file in list_options(group)]
        options = ", ".join(f"*{name}" if name == mark else name for name in names)
        brought = list_brought(group, picks.get(group)).items()
        items = [f"{k}={v}" for k, v in brought if k.split(".")[0] != group and v != "???"]
        if names:  # init_from has runs in their place
            yield group, [options, meaning, "* brings " + " ".join(items) if items else ""]


def _describe_settings(name: str, cfg: DictConfig) -> Iterator[tuple[str, str]]:
    """Each setting with its value, as on the command line, and its comment; a study's come last."""
    values: Any = OmegaConf.to_container(cfg, resolve=False)
    hydra, comments = values.pop("hydra"), _collect_comments(name, cfg)
    if name == "config":
        values["hydra"] = {"sweeper": hydra["sweeper"]}
    for key, value in flatten(values).items():
        if not key.endswith("_target_"):
            # What stands above a mapping is shown once, beside its first setting.
            parents = [comments.pop(key[: dot.start()], "") for dot in re.finditer(r"\.", key)]
            meaning = comments.get(key) or " ".join(filter(None, parents))
            yield f"{key}=" + value.replace('"', ""), meaning


def list_options(group: str) -> list[Path]:
    """The files of a group: the one that config.yaml chooses, the rest by name, own ones last."""
    default = read_defaults(CONF / "config.yaml").get(group, ("", ""))[0]
    folder = Path(os.environ.get(CONFIG_DIR, CONF))
    files = {*(CONF / group).glob("*.yaml"), *(folder / group).glob("*.yaml")}
    return sorted(files, key=lambda f: (f.parents[1] != CONF, f.stem != default, f.stem.rjust(2)))


def read_header(path: Path) -> list[str]:
    """The comment lines at the top of a file; the first one says what the option is."""
    top = takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    return [line.removeprefix("#").strip() for line in top]


def read_comments(path: Path, conf: Path = CONF) -> dict[str, str]:
    """Setting, as on the command line -> its comment, which may be empty.

    A mapping in braces is a single setting. Any other one is listed only with a comment.
    """
    header = read_header(path)
    body = path.read_text("utf-8").split("\n", len(header))[-1]
    prefix = path.parent.relative_to(conf).as_posix().replace("/", ".").strip(".")
    if header and header[0].startswith("@package "):
        prefix = header[0].removeprefix("@package ").replace("_global_", "")
    node = yaml.compose(body)
    if not node:
        return {}
    return dict(_comments(node, body, f"{prefix}." if prefix else ""))


def _comments(node: yaml.Node, body: str, prefix: str) -> Iterator[tuple[str, str]]:
    assert isinstance(node, yaml.MappingNode)
    for name, value in node.value:
        if name.value in _SYSTEM_KEYS:
            continue
        group = isinstance(value, yaml.MappingNode) and not value.flow_style
        above = _ABOVE.findall(body, 0, name.start_mark.index)[0]
        behind = _BEHIND.match(body, (name if group else value).end_mark.index)
        lines = [behind[1]] if behind else above.splitlines()
        meaning = " ".join(line.strip("# ") for line in lines)
        if meaning or not group:
            yield prefix + name.value, meaning
        if group:
            yield from _comments(value, body, f"{prefix}{name.value}.")


def _collect_comments(name: str, cfg: DictConfig) -> dict[str, str]:
    """What conf/ says about each setting.

    A command's own files speak first, then the chosen options. Other options speak of settings of
    their group alone, those with most comments first.
    """
    picks, file = cfg.hydra.runtime.choices, CONF / f"{name}.yaml"
    sources, others = [read_comments(path) for path in (file, CONF / "game.yaml", STUDY)], []
    for group in read_defaults(file):
        for path in list_options(group):
            comments = read_comments(path, path.parents[1])
            if path.stem == picks.get(group):
                sources.append(comments)
            else:
                own = {k: v for k, v in comments.items() if v and k.startswith(f"{group}.")}
                others.append(own)
    parts = [*sources, *sorted(others, key=len, reverse=True)]
    return {key: text for part in reversed(parts) for key, text in part.items() if text}


def _width() -> int:
    return min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)


def _row(head: str, text: str, column: int) -> list[str]:
    """Lines with a text beside its head, or below a long one."""
    if len(head) >= column:
        return _wrap(head, 4) + _row("", text, column)
    return _wrap(f"{head:<{column}}{text}", column)


def _wrap(line: str, indent: int) -> list[str]:
    return textwrap.wrap(line, _width(), subsequent_indent=" " * indent, break_on_hyphens=False)
