"""Starts train and eval, whose settings Hydra composes from conf/ and the command line.

With -m, Hydra hands over to hydra_plugins/wordle_rl_sweeper.py, which conf/hydra/sweeper/study.yaml
names. Heavy imports happen only once the config is known to be right.
"""

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from io import StringIO
from itertools import pairwise
from typing import Any

from wordle_rl.runs.config import (
    admit_own,
    begin_with_run,
    compose_config,
    expand,
    guarded_files,
    list_groups,
)
from wordle_rl.runs.errors import fail, whole_command
from wordle_rl.runs.files import read_yaml
from wordle_rl.runs.folder import LATEST, list_runs
from wordle_rl.runs.paths import CONF, shorten
from wordle_rl.runs.processes import read_launch
from wordle_rl.runs.progress import announce

TRAIN, EVAL = "config", "eval"  # the two configs in conf/, each for a command
_HELP = {"-h", "--help"}
_STUDY = {"-m", "--multirun"}
_RECIPES = {f"experiment={name}" for name in ("imitate", "reinforce", "reinforce_words")}
_CONFIG = {"-c", "--cfg"}
_ANSWERED = {*_CONFIG, "-i", "--info", "-sc", "--shell-completion"}  # by Hydra: nothing begins


def run_composed(name: str) -> None:
    """Run the command of a config, TRAIN or EVAL, with the arguments in sys.argv.

    Of torchrun's processes only the first one reads them, but each worker of a study does.
    """
    with whole_command():
        given, own = set(sys.argv[1:]), admit_own(sys.argv[1:])
        launch = read_launch() if name == TRAIN and not _STUDY & given else None
        if launch is not None and launch.rank:
            from wordle_rl.commands.train import follow

            follow(launch)
        names = {argument.partition("=")[0] for argument in given}
        if (_STUDY | {"sweep"}) & names and _CONFIG & names:
            fail("--cfg shows one run: leave -m and sweep= out, and give each setting one value")
        if _HELP & given:
            from wordle_rl.commands.help import format_group, format_help

            settings = [a for a in sys.argv[1:] if a[:1] == "~" or ("=" in a and a[0] != "-")]
            if _RECIPES & given and not ({"model", "init_from"} & names):
                settings += ["model=pretrained", "model.path=..."]
            cfg = compose_config(name, settings, with_hydra=True)
            named = [b for a, b in pairwise(sys.argv) if a not in ("--config-dir", "-cd")]
            pages = [format_group(name, a, cfg) for a in named if not {a, a[:1]} & {"-", *settings}]
            print("\n\n".join(pages or [format_help(name, cfg)]))
        else:
            _check_form(name, sys.argv[1:])
            typed = sys.argv = [sys.argv[0], *expand(sys.argv[1:])]
            if name == TRAIN and not _STUDY & given:
                sys.argv = [sys.argv[0], *begin_with_run(sys.argv[1:])]
            if own and not any(word.startswith(("--config-dir", "-cd")) for word in given):
                sys.argv = [*sys.argv, f"--config-dir={own}"]
            silent = bool(_ANSWERED & names)
            with nullcontext() if silent else announce("reading the settings"), guarded_files():
                _run_hydra(name, typed)


def complete(name: str, given: Sequence[str], word: str) -> list[str]:
    """Choices, settings, values and runs that a word may become. given: the words before it."""
    before = re.sub(" ?= ?", "=", " ".join(given))  # bash divides words at =
    inside = before.endswith("=") or (not word and re.search(r"(^| )[\w./]+$", before))
    line = f"{before.removesuffix('=')}={word}" if inside else f"{before} {word}"
    last = line.rpartition(" ")[2]
    if last.startswith(("run=", "resume=", "init_from=")):
        runs = (LATEST, *(str(shorten(folder.path)) for folder, _ in list_runs()))
        found = [one for run in runs if (one := f"{last.partition('=')[0]}={run}").startswith(last)]
    else:
        os.environ["COMP_LINE"], sys.argv = f"{name} {line}", [name, "-sc", "query=bash"]
        with redirect_stdout(StringIO()) as said, suppress(SystemExit):
            run_composed(name)
        found = [one for one in said.getvalue().split() if not one.startswith("hydra")]
    if len(found) == 1 and found[0] != last and found[0][-1] in "=.":  # no blank behind it
        return complete(name, given, found[0])
    return [one.removeprefix(last.removesuffix(word)) for one in found]


def _check_form(name: str, given: list[str]) -> None:
    """Say how a setting is written that is given in two words, and which of two is in force."""
    keys = {*list_groups(), *read_yaml(CONF / f"{name}.yaml"), "config-name"}
    for flag, after in pairwise([*given, "..."]):
        key, _, value = flag.removeprefix("--").partition("=")
        bare = flag.isidentifier() or re.fullmatch(r"\w+(\.\w+)+", flag)
        if (flag[:2] == "--" or bare) and key.partition(".")[0] in keys:
            fail(f"{flag}: write {key.replace('config-name', 'experiment')}={value or after}")
    last = {setting.partition("=")[0]: setting for setting in given if "=" in setting}
    for setting in given:
        if (other := last.get(setting.partition("=")[0], setting)) != setting:
            print(f"warning: {other} comes after {setting} and is in force", file=sys.stderr)


def _run_hydra(name: str, typed: list[str]) -> None:
    import hydra
    from hydra.core.hydra_config import HydraConfig

    # Makes Hydra raise its errors instead of printing paragraphs about them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    argparse.ArgumentParser.error = lambda self, message: fail(  # type: ignore[method-assign]
        f"{message}; settings are given as key=value, see --help"
    )
    argparse.ArgumentParser.parse_args = _parse_in_any_order  # type: ignore[assignment]
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"

    def start(cfg: Any) -> None:
        sys.argv = typed  # what a run records of its command
        # Hydra adds a line about an error that leaves this function.
        with announce("working"), whole_command():
            if name == TRAIN:
                from wordle_rl.commands.train import train as run
            else:
                from wordle_rl.commands.eval import evaluate as run
            run(cfg, HydraConfig.get().overrides.task)

    hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(start)()


def _parse_in_any_order(parser: argparse.ArgumentParser, args: Any = None) -> argparse.Namespace:
    """In place of parse_args: flags may stand between settings, and are written in full."""
    parser.allow_abbrev = False
    return parser.parse_intermixed_args(args)
