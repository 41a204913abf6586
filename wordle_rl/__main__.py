"""The command wordle-rl: wordle-rl <command> [arguments], or python -m wordle_rl <command>.

`train` and `eval` do what train.py and eval.py do. Every other command is the module of the same
name, so `wordle-rl plot-wins` is `python -m wordle_rl.plot_wins`. Nothing heavy is imported here.
"""

from __future__ import annotations

from wordle_rl.runs import start

if __name__ == "__main__":  # before anything slow is imported
    start.begin()

import sys
from collections.abc import Sequence

from wordle_rl.commands import COMPOSED, describe_commands, find_module, name_near_miss

_HELP = ("-h", "--help", "help")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names."""
    start.begin()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in _HELP:
        print(describe_commands())
        return
    if given[0] == "--version":
        from importlib.metadata import version

        print(f"wordle-rl {version('wordle-rl')}")
        return
    name, rest = given[0].replace("_", "-"), given[1:]
    sys.argv = [f"wordle-rl {name}", *rest]
    if name in COMPOSED:
        from wordle_rl import hydra_commands

        getattr(hydra_commands, COMPOSED[name])()
        return
    module = find_module(name)
    if module is None:
        from wordle_rl.runs.errors import run_plain

        run_plain(lambda: name_near_miss(given[0]))
    # As python -m does, so that each command begins as it does by itself.
    import runpy

    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
