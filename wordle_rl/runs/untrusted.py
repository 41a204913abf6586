"""What files.py offers, for callers that are not yet moved there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import (  # noqa: F401
    FolderError,
    check_all_entries,
    check_entries,
    printable,
    read_file,
    read_json,
    read_object,
    read_text,
)


def parse_json(data: bytes | str) -> Any:
    return json.loads(data)


def open_regular(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
