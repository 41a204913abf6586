"""Writes the pages of the website that repeat the code: python docs/make_pages.py FOLDER"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wordle_rl.training.metric_table import TABLE

folder = Path(sys.argv[1])
settings = ["# Settings", ""]
for command in ("train.py", "eval.py"):
    shown = subprocess.check_output([sys.executable, command, "--help"], text=True)
    settings += [f"## python {command} --help", "", "```", shown.rstrip(), "```", ""]
rows = [f"| `{m.title}` | `{m.key}` | {m.group} | {m.meaning} |" for m in TABLE]
metrics = ["# Metrics", "", "| TensorBoard | metrics.jsonl | group | meaning |", "| --- " * 4 + "|"]
(folder / "HELP.md").write_text("\n".join(settings), encoding="utf-8")
(folder / "METRICS.md").write_text("\n".join([*metrics, *rows]) + "\n", encoding="utf-8")
