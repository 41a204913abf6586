"""Builds the website of the docs in build/site; a broken link fails. `make docs` runs it.

The pages link across folders, so they are gathered in build/pages, with one more that repeats the
settings.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
# What git knows and what is new, so that a page under work shows, too.
LEFT_OUT = [":!tests", ":!wordle_rl", ":!results/tables.md", ":!.github"]
GATHERED = ["*.md", "*.png", "examples/*", "benchmarks/*", "LICENSE", "CITATION.cff", *LEFT_OUT]


def output(*command: str) -> str:
    return subprocess.check_output(command, text=True, cwd=ROOT)


shutil.rmtree(PAGES, ignore_errors=True)
for name in output("git", "ls-files", "-co", "--exclude-standard", *GATHERED).splitlines():
    if (ROOT / name).is_file():  # not deleted since
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, PAGES / name)
settings = ["# Settings", ""]
for command in ("train.py", "eval.py"):
    text = output(sys.executable, command, "--help", "all")
    settings += [f"## python {command} --help", "", "```", text.rstrip(), "```", ""]
(PAGES / "docs" / "HELP.md").write_text("\n".join(settings), encoding="utf-8")
shutil.copy(ROOT / "docs" / "zensical.toml", BUILD)
site = ["--strict", "--clean", "--config-file", str(BUILD / "zensical.toml")]
subprocess.run([sys.executable, "-m", "zensical", "build", *site], check=True)
