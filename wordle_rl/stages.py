"""What a model was trained on: a record in its own folder, which stays with it when it is copied.

wordle_rl.json lists the stages of a model, oldest first, one for each run that trained it: the
run's name, its protocol (which secrets it could train on), the digests of its word lists and
splits, its prompt and form. A model that no run of this package made has no record.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordle_rl.components import ConfigError
from wordle_rl.json_files import write_json
from wordle_rl.run_folder import maker

if TYPE_CHECKING:
    from wordle_rl.build import Experiment
    from wordle_rl.prompts import PromptStyle

RECORD = "wordle_rl.json"
_OF_MANIFEST = ("protocol", "digests", "prompt", "form")

Stage = dict[str, Any]


def stages_of(model: str | Path) -> list[Stage]:
    """The stages of a model, given its hub name or folder; none where no run is known.

    Runs of earlier versions left no record: their manifests say the same, while a model lies in
    its run's folder. Raises ConfigError in one line for a record that cannot be read.
    """
    folder = Path(model)
    if not folder.is_dir():
        return []
    if (folder / RECORD).is_file():
        return _read(folder / RECORD)
    run = maker(folder)
    if run is None:
        return []
    manifest = run.manifest()
    own = {key: manifest[key] for key in _OF_MANIFEST if key in manifest}
    return [*stages_of(str(manifest.get("model"))), {"run": run.path.name, **own}]


def stages_of_run(setup: Experiment, run: str) -> list[Stage]:
    """The stages of the model that a run of this name makes: those of its start, and the run."""
    own = {
        "run": run,
        "protocol": setup.config["words"]["protocol"],
        "digests": {"words": setup.words.digest, "splits": setup.splits.digest},
        "prompt": prompt_name(setup.lab.style),
        "form": setup.lab.form,
    }
    return [*stages_of(setup.model.location), own]


def write_stages(folder: Path, stages: Sequence[Stage]) -> None:
    """Put the stages into a model's folder; nothing where there are none."""
    if stages:
        write_json(folder / RECORD, {"stages": list(stages)})


def prompt_name(style: PromptStyle) -> str:
    """The option of prompt= that a style is."""
    return style.name + "_think" * style.think


def _read(file: Path) -> list[Stage]:
    try:
        stages = json.loads(file.read_bytes())["stages"]
        if not stages or not all(isinstance(stage["run"], str) for stage in stages):
            raise ValueError("no stages with a run")
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{file}: no record of the runs that made a model ({reason})") from None
    return stages
