"""Prints a script of shell completion: wordle-rl completion bash|zsh

The printed script asks this command for candidates: commands, choices of conf/ and their options,
settings, and run folders. Everything else is completed as a file name.
"""

from __future__ import annotations

if __name__ == "__main__":  # before anything slow is imported
    from wordle_rl.runs import start

    start.begin()

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from wordle_rl.choices import defaults, options, read_config
from wordle_rl.commands import find_commands
from wordle_rl.runs.command_line import CommandParser
from wordle_rl.runs.errors import run_plain
from wordle_rl.runs.paths import CONF, ROOT

_CONFIGS = {"train": "config", "eval": "eval", "memory-plan": "config", "datasets": "config"}
_RUNS = ("run", "resume", "init_from")  # settings whose value is a run folder
_OUTPUTS = "outputs"
_SCRIPTS = {
    "bash": """\
# Completion of wordle-rl for bash. In ~/.bashrc: eval "$(wordle-rl completion bash)"
_wordle_rl() {
    local line=${COMP_LINE:0:COMP_POINT} IFS=$'\\n'
    local word=${line##*[[:space:]]} ends='=:' before=
    COMPREPLY=($("${COMP_WORDS[0]}" completion --line "$line" 2>/dev/null))
    # Bash completes what follows the last = or :, so the rest of the word is not repeated.
    [[ $COMP_WORDBREAKS == *=* ]] && before=${word%"${word##*[$ends]}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -o nospace -F _wordle_rl wordle-rl""",
    "zsh": """\
#compdef wordle-rl
# Completion of wordle-rl for zsh. In ~/.zshrc, after compinit: eval "$(wordle-rl completion zsh)"
_wordle_rl() {
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    local -a found
    found=("${(@f)$("${words[1]}" completion --line "$line" 2>/dev/null)}")
    if [[ -n $found ]]; then compadd -Q -S '' -- $found; else _files; fi
}
compdef _wordle_rl wordle-rl""",
}


def complete(line: str, conf: Path = CONF, root: Path = ROOT) -> list[str]:
    """The candidates for the last word of a command line; a whole word ends in a blank.

    root: where the folder of runs is. Without candidates, the shell completes file names.
    """
    words = line.split()
    current = words.pop() if words and not line[-1].isspace() else ""
    if len(words) < 2:
        return _begin_with(current, (f"{name} " for name in find_commands()))
    if words[1] == "completion":
        return _begin_with(current, (f"{shell} " for shell in _SCRIPTS))
    if (config := _CONFIGS.get(words[1])) is None:
        return []
    key, equals, value = current.partition("=")
    if equals:
        before, comma, last = value.rpartition(",")
        found = _begin_with(last, _list_values(key, conf, root))
        return [f"{key}={before}{comma}{one} " for one in found]
    return _begin_with(current, _list_keys(current, config, conf))


def _begin_with(word: str, candidates: Iterable[str]) -> list[str]:
    return sorted(one for one in candidates if one.startswith(word))


def _list_values(key: str, conf: Path, root: Path) -> list[str]:
    """The options of a choice, or the runs that a setting may name."""
    if key in _RUNS:
        runs = (root / _OUTPUTS).glob("*/manifest.json")
        return ["latest", *(os.path.relpath(run.parent, root) for run in runs)]
    if not key or not (conf / key).is_dir():
        return []
    return [path.stem for path in (conf / key).glob("*.yaml")]


def _list_keys(word: str, config: str, conf: Path) -> list[str]:
    """Choices and settings of a command, each with its =. Settings in a group need its name."""
    file = conf / f"{config}.yaml"
    groups = [group for group in defaults(file) if "/" not in group]
    group = word.partition(".")[0]
    if "." in word and group in groups:
        keys = {key.name for option in options(group, conf) for key in option.keys if key.value}
    else:
        keys = {*groups, *(key.name for key in read_config(file, conf).keys)}
    return [f"{key}=" for key in keys if "." in word or "." not in key]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = CommandParser(
        prog="wordle-rl completion",
        description='Print the completion for a shell; eval "$(wordle-rl completion bash)" loads '
        "it.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("shell", nargs="?", choices=tuple(_SCRIPTS))
    what.add_argument("--line", help="print the candidates for this command line instead")
    given = parser.parse_args(arguments)
    if given.line is None:
        print(_SCRIPTS[given.shell])
    else:
        print("\n".join(complete(given.line)))
    return 0


if __name__ == "__main__":
    run_plain(main)
