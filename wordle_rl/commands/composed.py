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
_ANSWERED = {*_CONFIG, "-i", "--info", "-sc", "--shell-completion"}  # by Hydra: nothing begins


def run_composed(name: str) -> None:
    """Run the command of a config, TRAIN or EVAL, with the arguments in sys.argv.

    Of torchrun's processes only the first one reads them, but each worker of a study does.
    """
    with whole_command():
        admit_own(sys.argv[1:])
        typed, given = sys.argv, set(sys.argv[1:])
        launch = read_launch() if name == TRAIN and not _STUDY & given else None
        if launch is not None and launch.rank:
            from wordle_rl.commands.train import follow

            follow(launch)
        names = {argument.partition("=")[0] for argument in given}
        if (_STUDY | {"sweep"}) & names and _CONFIG & names:
            fail("--cfg shows one run: leave -m and sweep= out, and give each setting one value")
        if _HELP & given:
            from wordle_rl.commands.help import format_group, format_help, format_usual

            settings = [a for a in sys.argv[1:] if a[:1] == "~" or ("=" in a and a[0] != "-")]
            single = [a for a in settings if not (_STUDY & given and _has_several_values(a))]
            cfg = compose_config(name, single, with_hydra=True)
            named = [b for a, b in pairwise(sys.argv) if a not in ("--config-dir", "-cd")]
            groups = [word for word in named if not {word, word[:1]} & {"-", *settings}]
            if groups == ["all"]:
                print(format_help(name, cfg))
            else:
                pages = [format_group(name, group, cfg) for group in groups]
                print("\n\n".join(pages or [format_usual(name, cfg)]))
        else:
            _check_form(name, sys.argv[1:])
            sys.argv = [sys.argv[0], *expand(_put_flags_first(sys.argv[1:]))]
            silent = bool(_ANSWERED & names)
            with nullcontext() if silent else announce("reading the settings"):
                _run_hydra(name, typed)


def _has_several_values(setting: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(quoted(setting)).is_sweep_override()


def _put_flags_first(given: list[str]) -> list[str]:
    """Arguments as Hydra parses them, without --config-dir. Flags are written in full."""
    from hydra._internal.utils import get_args_parser

    parser: Any = get_args_parser()
    parser.allow_abbrev = False
    parser.error = lambda text: fail(f"{text}; settings are given as key=value, see --help")
    given = without_folder(given)
    settings = parser.parse_intermixed_args(given).overrides
    return [word for word in given if word not in settings] + settings


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
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"

    def start(cfg: Any) -> None:
        sys.argv = typed  # what a run records of its command
        # Hydra adds a line about an error that leaves this function.
        with announce("working"), whole_command():
            check_choices(HydraConfig.get(), cfg)
            if name == TRAIN:
                from wordle_rl.commands.train import train as run
            else:
                from wordle_rl.commands.eval import evaluate as run
            run(cfg, HydraConfig.get().overrides.task)

    hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(start)()
