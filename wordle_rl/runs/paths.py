"""Where the project's files are, and how its two main commands are called there.

In a checkout conf/ is beside the package, and relative paths start from the project. An installed
package has conf/ inside, and relative paths start from the current folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (PACKAGE / "conf").is_dir()
CONF = PACKAGE / "conf" if INSTALLED else PACKAGE.parent / "conf"
ROOT = Path.cwd() if INSTALLED else PACKAGE.parent  # where relative paths start
TRAIN, EVAL = (
    ("wordle-rl train", "wordle-rl eval") if INSTALLED else ("python train.py", "python eval.py")
)


def environment() -> dict[str, str]:
    """The environment in which another Python process imports this package."""
    env = dict(os.environ)
    if not INSTALLED:
        places = [str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))
    return env


def train_command() -> list[str]:
    """The arguments that start train in a process of its own."""
    if INSTALLED:
        return [sys.executable, "-m", "wordle_rl", "train"]
    return [sys.executable, str(ROOT / "train.py")]
