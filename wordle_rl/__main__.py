"""The command wordle-rl: wordle-rl <command> [arguments], or python -m wordle_rl <command>.

`train` and `eval` are train.py and eval.py. Every other command is a function in the module of its
name in wordle_rl/commands/, whose parameters are the arguments and whose docstring is the help.
These modules import nothing heavy before the function runs.
"""

from wordle_rl.runs.interrupts import begin

if __name__ == "__main__":  # before anything slow is imported
    begin()

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated

from wordle_rl import __version__
from wordle_rl.runs.config import admit_own
from wordle_rl.runs.errors import fail, user_errors, whole_command

with whole_command():  # which names a library that is not installed
    import typer

    from wordle_rl.commands.composed import EVAL, TRAIN, complete, run_composed
    from wordle_rl.runs.paths import runnable

_HELP = {"help_option_names": ["-h", "--help"]}
_AS_GIVEN = {"ignore_unknown_options": True}  # Hydra reads them
_COMPOSED = {  # name -> its config in conf/, and what it does
    "train": (TRAIN, "Train a model to play Wordle, or run a study with -m"),
    "eval": (EVAL, "Play full games with a run, a model or a scripted player"),
}
_MODULES = (
    "data",
    "doctor",
    "export",
    "fetch",
    "judge",
    "memory",
    "openers",
    "play",
    "report",
    "runs",
)
_MISSING = ("Missing argument 'RUN ...'.", "Missing argument 'STUDY'.")

app = typer.Typer(context_settings=_HELP, rich_markup_mode=None)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"wordle-rl {__version__}")
        raise typer.Exit()


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """A laboratory for reinforcement learning of language models on Wordle."""


def _add_composed(name: str, config: str, summary: str) -> None:
    def extend(context: typer.Context, incomplete: str) -> list[str]:
        return complete(config, context.params.get("given") or (), incomplete)

    words = typer.Argument(autocompletion=extend)

    @app.command(name, help=summary, add_help_option=False, context_settings=_AS_GIVEN)
    def start_composed(given: Annotated[list[str] | None, words] = None) -> None:
        sys.argv = [f"wordle-rl {name}", *(given or ())]
        run_composed(config)


for _name, _about in _COMPOSED.items():
    _add_composed(_name, *_about)
for _name in _MODULES:
    app.command()(getattr(importlib.import_module(f"wordle_rl.commands.{_name}"), _name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names."""
    begin()
    given = list(sys.argv[1:] if arguments is None else arguments)
    with whole_command():
        sys.exit(run(given or ["--help"]))


def run(arguments: Sequence[str]) -> int | None:
    """Run a command; a wrong argument or input ends it with one line and exit code 2."""
    with user_errors():
        admit_own(arguments)
        try:
            return app(arguments, prog_name="wordle-rl", standalone_mode=False)
        except typer.TyperException as error:
            said = error.format_message().replace("Value error, ", "")
            fail(f"{said}{_list_allowed(*arguments)}" if said in _MISSING else said)


def _list_allowed(command: str, *_: str) -> str:
    """What stands for a missing argument."""
    if command == "judge":
        from wordle_rl.sweeps.plan import list_studies

        return f" A folder, or one of {', '.join(list_studies())}"
    return f" latest, a number or a folder: {runnable('wordle-rl runs')} lists them"


if __name__ == "__main__":
    main()
