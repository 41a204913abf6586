"""Starts train and eval, whose settings Hydra composes from conf/ and the command line.

With -m, Hydra hands over to hydra_plugins/wordle_rl_sweeper.py, which conf/hydra/sweeper/study.yaml
names. Heavy imports happen only once the config is known to be right.
"""

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
    check_choices,
    compose_config,
    expand,
    list_groups,
    quoted,
    without_folder,
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
_CONFIG = {"-c", "--cfg"}
_HYDRA_FLAGS = {*_CONFIG, "-i", "--info", "-sc", "--shell-completion"}  # nothing begins


def run_composed(name: str) -> None:
    """Run the command of a config, TRAIN or EVAL, with the arguments in sys.argv.

    Of torchrun's processes only the first one reads them, but each worker of a study does.
    """
    with whole_command():
        admit_own(sys.argv[1:])
        argv, args = sys.argv, set(sys.argv[1:])
        launch = read_launch() if name == TRAIN and not _STUDY & args else None
        if launch is not None and launch.rank:
            from wordle_rl.commands.train import follow

            follow(launch)
        names = {argument.partition("=")[0] for argument in args}
        if (_STUDY | {"sweep"}) & names and _CONFIG & names:
            fail("--cfg shows one run: leave -m and sweep= out, and give each setting one value")
        if _HELP & args:
            from wordle_rl.commands.help import format_group, format_help, format_usual

            settings = [a for a in sys.argv[1:] if a[:1] == "~" or ("=" in a and a[0] != "-")]
            overrides = [a for a in settings if not (_STUDY & args and _has_several_values(a))]
            cfg = compose_config(name, overrides, with_hydra=True)
            words = [b for a, b in pairwise(sys.argv) if a not in ("--config-dir", "-cd")]
            groups = [word for word in words if not {word, word[:1]} & {"-", *settings}]
            if groups == ["all"]:
                print(format_help(name, cfg))
            else:
                pages = [format_group(name, group, cfg) for group in groups]
                print("\n\n".join(pages or [format_usual(name, cfg)]))
        else:
            _check_form(name, sys.argv[1:])
            sys.argv = [sys.argv[0], *expand(_put_flags_first(sys.argv[1:]))]
            silent = bool(_HYDRA_FLAGS & names)
            with nullcontext() if silent else announce("reading the settings"):
                _run_hydra(name, argv)


def _has_several_values(setting: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(quoted(setting)).is_sweep_override()


def _put_flags_first(args: list[str]) -> list[str]:
    """Arguments as Hydra parses them, without --config-dir. Flags are written in full."""
    from hydra._internal.utils import get_args_parser

    parser: Any = get_args_parser()
    parser.allow_abbrev = False
    parser.error = lambda text: fail(f"{text}; settings are given as key=value, see --help")
    args = without_folder(args)
    settings = parser.parse_intermixed_args(args).overrides
    return [word for word in args if word not in settings] + settings


def complete(name: str, given: Sequence[str], word: str) -> list[str]:
    """Choices, settings, values and runs that a word may become. given: the words before it."""
    text = re.sub(" ?= ?", "=", " ".join(given))  # bash divides words at =
    inside = text.endswith("=") or (not word and re.search(r"(^| )[\w./]+$", text))
    line = f"{text.removesuffix('=')}={word}" if inside else f"{text} {word}"
    tail = line.rpartition(" ")[2]
    if tail.startswith(("run=", "resume=", "init_from=")):
        runs = (LATEST, *(str(shorten(folder.path)) for folder, _ in list_runs()))
        words = [arg for run in runs if (arg := f"{tail.partition('=')[0]}={run}").startswith(tail)]
    else:
        os.environ["COMP_LINE"], sys.argv = f"{name} {line}", [name, "-sc", "query=bash"]
        with redirect_stdout(StringIO()) as output, suppress(SystemExit):
            run_composed(name)
        words = [arg for arg in output.getvalue().split() if not arg.startswith("hydra")]
    if len(words) == 1 and words[0] != tail and words[0][-1] in "=.":  # no blank behind it
        return complete(name, given, words[0])
    return [arg.removeprefix(tail.removesuffix(word)) for arg in words]


def _check_form(name: str, args: list[str]) -> None:
    """Say how a setting is written that is given in two words, and which of two is in force."""
    keys = {*list_groups(), *read_yaml(CONF / f"{name}.yaml"), "config-name"}
    for flag, next_word in pairwise([*args, "..."]):
        key, _, value = flag.removeprefix("--").partition("=")
        bare = flag.isidentifier() or re.fullmatch(r"\w+(\.\w+)+", flag)
        if (flag[:2] == "--" or bare) and key.partition(".")[0] in keys:
            fail(f"{flag}: write {key.replace('config-name', 'experiment')}={value or next_word}")
    by_key = {setting.partition("=")[0]: setting for setting in args if "=" in setting}
    for setting in args:
        if (winner := by_key.get(setting.partition("=")[0], setting)) != setting:
            print(f"warning: {winner} comes after {setting} and is in force", file=sys.stderr)


def _run_hydra(name: str, argv: list[str]) -> None:
    import hydra
    from hydra.core.hydra_config import HydraConfig

    # Makes Hydra raise its errors instead of printing paragraphs about them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"

    def start(cfg: Any) -> None:
        sys.argv = argv  # what a run records of its command
        # Hydra adds a line about an error that leaves this function.
        with announce("working"), whole_command():
            check_choices(HydraConfig.get(), cfg)
            if name == TRAIN:
                from wordle_rl.commands.train import train as run
            else:
                from wordle_rl.commands.eval import evaluate as run
            run(cfg, HydraConfig.get().overrides.task)

    hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(start)()
