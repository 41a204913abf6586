"""Studies without a file in conf/sweep/ (-m optim.lr=1e-4,1e-3), and the start that they keep."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wordle_rl.runs.listing import LATEST, find_run
from wordle_rl.runs.paths import ROOT
from wordle_rl.sweeps.plan import quote_path
from wordle_rl.sweeps.records import StudyRecord

FOLDER = "outputs/studies"  # of the reports of these studies, which belong to nobody else
_SHOWN = 40  # characters of the settings in a study's name
_START = "init_from"


def describe_ad_hoc(varied: Iterable[str], arguments: Sequence[str]) -> dict[str, Any]:
    """The settings of hydra.sweeper for a study of these arguments alone.

    varied: the settings that have several values. The same arguments make the same name, so the
    command continues its study.
    """
    names = list(varied)
    shown = re.sub(r"[^A-Za-z0-9.]+", "-", "_".join(names)).strip("-.")[:_SHOWN] or "study"
    digest = hashlib.sha256("\n".join(sorted(arguments)).encode("utf-8", "surrogateescape"))
    name = f"{shown}-{digest.hexdigest()[:8]}"
    return {
        "name": name,
        "question": f"What does {' and '.join(names)} change?",
        "folder": f"{FOLDER}/{name}",
    }


def settle_start(overrides: Sequence[str], folder: Path) -> list[str]:
    """The overrides with the run that init_from=latest means, which is the same for every trial.

    folder: of the study. One that has begun keeps the run that was the latest then.
    """
    latest = f"{_START}={LATEST}"
    if latest not in overrides:
        return list(overrides)
    begun: list[str] = []
    with suppress(FileNotFoundError):
        begun = StudyRecord.read(folder).identity.get("overrides", [])
    start = next((one for one in begun if one.startswith(f"{_START}=")), None)
    if start is None:
        run = find_run(LATEST, _START, ROOT, ROOT / "outputs", "finished")
        start = f"{_START}={quote_path(run.path)}"
    return [start if one == latest else one for one in overrides]
