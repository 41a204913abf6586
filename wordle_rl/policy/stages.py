"""What a model was trained on: a record in the model's own folder, which is copied with it.

wordle_rl.json lists the stages of a model, oldest first, with one stage for each run that trained
it. A model that no run of this package made has no record. Entries of a stage:

- run: the name of its folder. algorithm, and player: the teacher, null without one.
- careless: share of the teacher's guesses that ignore the clues, unless it is 0.
- start: the model it began with, in the first stage only. "untrained" is a new one.
- protocol, allowed_share: which secrets its training games could have. secrets: how many.
- held_out: how many validation and test secrets could not be among them.
- digests: of the word lists, the splits and these secrets.
- data: the file that was trained on, if any. Its name, sha256 and split, the number of rows, how
  many of them have no secret (unknown_rows), and the secrets of the others, joined by blanks.
- prompt, form: how the model was asked.
- embedded: the name of the embedded model that it became a part of, if any.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordle_rl.runs.files import (
    FolderError,
    check_all_entries,
    check_entries,
    read_object,
    write_json,
)
from wordle_rl.runs.instantiate import ConfigError

if TYPE_CHECKING:
    from wordle_rl.prompts.styles import PromptStyle

RECORD = "wordle_rl.json"
_KINDS: dict[str, Any] = {
    "digests": dict[str, str],
    **dict.fromkeys(("protocol", "prompt", "form", "player"), str | None),
    **dict.fromkeys(("start", "algorithm", "embedded"), str),
    **dict.fromkeys(("secrets", "held_out"), int),
    **dict.fromkeys(("allowed_share", "careless"), float),
    "data": dict,
}
_DATA_KINDS: dict[str, Any] = {
    **dict.fromkeys(("file", "sha256", "split", "secrets"), str),
    **dict.fromkeys(("rows", "unknown_rows"), int),
}

Stage = dict[str, Any]


def stages_of(model: str | Path) -> list[Stage]:
    """The stages of a model, given its hub name or folder. Empty without a record.

    Raises ConfigError in one line when the record cannot be read.
    """
    file = Path(model) / RECORD
    return _read(file) if file.is_file() else []


def write_stages(folder: Path, stages: Sequence[Stage]) -> None:
    """Write the stages into a model's folder, unless there are none."""
    if stages:
        write_json(folder / RECORD, {"stages": list(stages)})


def prompt_name(style: PromptStyle) -> str:
    """The value of prompt= that gives this style."""
    return style.name + "_think" * style.think


def _read(file: Path) -> list[Stage]:
    try:
        record = read_object(file)
        check_all_entries(file, record, {"stages": list[dict]})
        for stage in record["stages"]:
            check_all_entries(file, stage, {"run": str})
            check_entries(file, stage, _KINDS)
            if "data" in stage:
                check_all_entries(file, stage["data"], {"secrets": str, "unknown_rows": int})
                check_entries(file, stage["data"], _DATA_KINDS)
    except (FolderError, OSError) as error:
        raise ConfigError(f"{error}; it should list the runs that made the model") from None
    if not record["stages"]:
        raise ConfigError(f"{file}: no stages; it should list the runs that made the model")
    return record["stages"]
