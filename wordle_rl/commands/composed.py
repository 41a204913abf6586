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
)
from wordle_rl.runs.errors import fail, whole_command
from wordle_rl.runs.files import read_yaml
from wordle_rl.runs.folder import LATEST, list_runs
from wordle_rl.runs.paths import CONF, shorten
from wordle_rl.runs.processes import read_launch
from wordle_rl.runs.progress import announce

TRAIN, EVAL = "config", "eval"  # the two configs in conf/, each for a command


def run_composed(name: str) -> None:
    """Run the command of a config, TRAIN or EVAL, with the arguments in sys.argv.

    Of torchrun's processes only the first one reads them, but each worker of a study does.
    """
    with whole_command():
        arguments = sys.argv[1:]
        admit_own(arguments)
        trains = name == TRAIN and not {"-m", "--multirun"} & {*arguments}
        launch = read_launch() if trains else None
        if launch is not None and launch.rank:
            from wordle_rl.commands.train import follow

            follow(launch)
        if not {"-h", "--help"} & {*arguments}:
            _check_form(name, arguments)
        flags = _read_flags(arguments)
        studies = flags.multirun or any(word.startswith("sweep=") for word in flags.overrides)
        if studies and flags.cfg:
            fail("--cfg shows one run: leave -m and sweep= out, and give each setting one value")
        if flags.help:
            _print_help(name, flags)
            return
        words = [word for word in arguments if word not in flags.overrides]  # flags come first
        silent = flags.cfg or flags.info or flags.shell_completion  # nothing begins
        with nullcontext() if silent else announce("reading the settings"):
            _run_hydra(name, words + expand(flags.overrides))


def _read_flags(arguments: Sequence[str]) -> Any:
    """What Hydra's parser makes of arguments. Flags may stand anywhere, and are written in full."""
    from hydra._internal.utils import get_args_parser

    parser: Any = get_args_parser()
    parser.allow_abbrev = False
    parser.error = lambda text: fail(f"{text}; settings are given as key=value, see --help")
    return parser.parse_intermixed_args(arguments)


def _print_help(name: str, flags: Any) -> None:
    """Print what --help says of the command, or of each group that stands beside it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from wordle_rl.commands.help import format_group, format_help, format_usual

    settings = [word for word in flags.overrides if "=" in word or word.startswith("~")]
    groups = [word for word in flags.overrides if word not in settings]
    if flags.multirun:
        overrides = OverridesParser.create().parse_overrides([quoted(word) for word in settings])
        settings = [str(o.input_line) for o in overrides if not o.is_sweep_override()]
    cfg = compose_config(name, settings, with_hydra=True)
    if groups == ["all"]:
        print(format_help(name, cfg))
    else:
        pages = [format_group(name, group, cfg) for group in groups]
        print("\n\n".join(pages or [format_usual(name, cfg)]))


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


def _run_hydra(name: str, words: list[str]) -> None:
    """Let Hydra compose the settings of words, and run what they ask for."""
    import hydra
    from hydra.core.hydra_config import HydraConfig

    # Makes Hydra raise its errors instead of printing paragraphs about them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    argv, sys.argv = sys.argv, [sys.argv[0], *words]
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
