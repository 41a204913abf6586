"""Writes the page of the website that repeats the settings: python docs/make_pages.py FOLDER"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

folder = Path(sys.argv[1])
settings = ["# Settings", ""]
for command in ("train.py", "eval.py"):
    shown = subprocess.check_output([sys.executable, command, "--help"], text=True)
    settings += [f"## python {command} --help", "", "```", shown.rstrip(), "```", ""]
(folder / "HELP.md").write_text("\n".join(settings), encoding="utf-8")
