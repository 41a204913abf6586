"""The index of studies, sweeps/README.md: what each asked, found and cost.

Only the text between the two markers is written again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wordle_rl.runs.files import FolderError, read_object, write_bytes
from wordle_rl.runs.paths import module_command
from wordle_rl.sweeps.effect_table import FILE, format_headline, wrap
from wordle_rl.sweeps.report import BEGIN, CONCLUSION, END, UNWRITTEN

_LISTED = re.compile(r"^## \[([^\]]+)\]\(", re.M)  # a study in the index


def read_conclusion(page: str) -> str:
    """The first paragraph of the conclusion that a person wrote, in one line."""
    written = page.partition(CONCLUSION)[2].strip()
    return " ".join(written.partition("\n\n")[0].partition("\n#")[0].split())


_PICTURES = {  # the first that a study has is shown, with this title
    "over_time.png": "Each validation of", "wins.png": "Validation wins of each trial of",
}  # fmt: skip


def write_index(root: Path, also: str | None = None) -> None:
    """Write the list of studies into <root>/README.md, each with its finding and a picture.

    Lists the studies that it has already, and `also` this one. Without it, only an index that is
    there is written again.
    """
    path = root / "README.md"
    if not path.exists() and also is None:
        return
    before = f"# Studies\n\n{BEGIN}{END}\n"
    if path.exists():
        before = path.read_text(encoding="utf-8")
    names = {*_LISTED.findall(before), *filter(None, [also])}
    pages = [page for name in sorted(names) if (page := root / name / "README.md").is_file()]
    parts = [BEGIN, format_overview([page.parent for page in pages])]
    for page in pages:
        name, text = page.parent.name, page.read_text(encoding="utf-8")
        parts += [f"## [{name}]({name}/README.md)", wrap(read_conclusion(text) or UNWRITTEN)]
        shown = (file for file in _PICTURES if (page.parent / file).exists())
        if file := next(shown, None):
            parts.append(f"![{_PICTURES[file]} {name}]({name}/{file})")
    listed = "\n\n".join([*parts, END])
    text = before.partition(BEGIN)[0] + listed + before.partition(END)[2]
    if text != before:
        write_bytes(path, text.encode())


def format_overview(folders: Sequence[Path]) -> str:
    """A row for each study: its question, first effect, verdict and cost. Raises FolderError."""
    head = ("study", "question", "effect", "verdict", "cost")
    rows = [[f"[{folder.name}]({folder.name}/README.md)", *_read_row(folder)] for folder in folders]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def _read_row(folder: Path) -> tuple[str, str, str, str]:
    path = folder / FILE
    if not path.is_file():  # a study from before effects were computed
        return "-", "-", "-", "-"
    about: dict[str, Any] = read_object(path)
    try:
        return format_headline(about)
    except (KeyError, TypeError, ValueError):
        raise FolderError(
            f"{path}: not the effects of a study; {module_command('study')} writes it"
        ) from None
