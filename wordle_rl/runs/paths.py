"""Where the project's files are, and how its commands are called there.

In a checkout conf/ is beside the package, and relative paths start from the project. An installed
package has conf/ inside, and relative paths start from the current folder.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (PACKAGE / "conf").is_dir()
CONF = PACKAGE / "conf" if INSTALLED else PACKAGE.parent / "conf"
ROOT = Path.cwd() if INSTALLED else PACKAGE.parent  # where relative paths start
CONFIG_DIR = "WORDLE_RL_CONFIG_DIR"  # environment variable that stands for --config-dir


def quote(text: str) -> str:
    """Any text as a value on the command line, such as a path."""
    # Hydra takes a backslash as it is, but before a quote.
    body = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text).replace("'", "\\'")
    return f"'{body}'"


def shorten(path: Path) -> Path:
    """A path from where relative paths start, where the current folder is that place."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) and Path.cwd() == ROOT else path


def runnable(line: str) -> str:
    """A command as it can be pasted here: `python <script> ...`, `wordle-rl ...` and the like.

    A program is called by its name where PATH leads to the environment that runs, and otherwise by
    its path. A script of the project has its path where the current folder is another one.
    """
    program, _, rest = line.partition(" ")
    python = Path(sys.executable)
    path = python if program == "python" else python.with_name(program)
    if not path.exists():
        return runnable(f"python -m {program.replace('-', '_')} {rest}")
    location = Path(shutil.which(program) or "/")
    if location.parent.resolve() != path.parent.resolve() or not location.samefile(path):
        program = shlex.quote(str(shorten(path)))
    script, blank, tail = rest.partition(" ")
    if script.endswith(".py"):
        rest = shlex.quote(str(shorten(ROOT / script))) + blank + tail
    return f"{program} {rest}"


# The two main commands by name, and as they can be pasted here.
TRAIN_NAME = "wordle-rl train" if INSTALLED else "python train.py"
EVAL_NAME = "wordle-rl eval" if INSTALLED else "python eval.py"
TRAIN, EVAL = runnable(TRAIN_NAME), runnable(EVAL_NAME)


def command(program: str, key: str, value: object) -> str:
    """TRAIN or EVAL with a setting, quoted for Hydra and for a shell, so that it can be pasted."""
    text, folder = str(value), os.environ.get(CONFIG_DIR)
    program += f" --config-dir={shlex.quote(folder)}" if folder else ""
    if re.fullmatch(r"[\w./+-]+", text):
        return f"{program} {key}={text}"
    setting = f"{key}={quote(text)}"
    plain = not re.search(r"[\"$`\\!]", setting)
    return f"{program} " + (f'"{setting}"' if plain else shlex.quote(setting))


def environment() -> dict[str, str]:
    """The environment in which another Python process imports this package."""
    env = dict(os.environ)
    if not INSTALLED:
        folders = [str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
    return env


def train_command() -> list[str]:
    """The arguments that start train in a process of its own."""
    if INSTALLED:
        return [sys.executable, "-m", "wordle_rl", "train"]
    return [sys.executable, str(ROOT / "train.py")]
