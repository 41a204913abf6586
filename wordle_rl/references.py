"""The players that a study's picture is compared with: the model's teacher, and the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from wordle_rl.adapters.api import compose_config
from wordle_rl.policy.model_names import locate
from wordle_rl.policy.stages import stages_of
from wordle_rl.runs.files import FolderError
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.results import Study


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A player to compare with, on all original answers by the original rules."""

    name: str
    rate: float  # share of games won, 0..1
    guesses: float  # mean guesses, a lost game as 7


OPTIMUM = Reference(name="optimum", rate=1.0, guesses=3.421)  # published, see docs/RESULTS.md
TEACHERS = {  # by the name in algorithm.player; tests/commands/test_evaluate.py plays them
    "random_consistent": Reference(name="teacher: any answer that fits", rate=0.982, guesses=4.08),
    "random_consistent_allowed": Reference(
        name="teacher: any word that fits", rate=0.897, guesses=4.82
    ),
    "entropy": Reference(name="teacher: greedy entropy", rate=1.0, guesses=3.432),
    "entropy_allowed": Reference(
        name="teacher: greedy entropy, all words", rate=1.0, guesses=3.965
    ),
}


def find_study_references(study: Study) -> tuple[Reference, ...]:
    """The teacher of a study's start, if it is the same in all arms, and the optimum.

    Empty for other words or rules, and for a study without games, whose models were older ones.
    """
    identity = study.identity
    arms = [[], *(identity.get("arms") or {}).values()]
    settings = [*identity.get("overrides", []), *identity.get("params", {})]
    if not study.games or any(_may_change_references(setting) for setting in settings):
        return ()
    try:
        # Most arms differ in what is of no account here.
        changes = {tuple(filter(_may_change_references, arm)) for arm in arms}
        starts = {describe_start((*identity["stages"][-1], *change)) for change in changes}
    except (ConfigError, FolderError, OSError):
        return ()
    if {original for original, _ in starts} != {True}:
        return ()
    teacher = TEACHERS.get(str(starts.pop()[1])) if len(starts) == 1 else None
    return (OPTIMUM,) if teacher is None else (OPTIMUM, teacher)


def _may_change_references(setting: str) -> bool:
    return setting.startswith(("experiment", "model", "init_from", "rules", "words"))


@cache  # composing takes a moment
def describe_start(settings: tuple[str, ...]) -> tuple[bool, str | None]:
    """Whether words and rules are the original ones, and the player that the model imitated."""
    config = compose_config("config", settings)
    original = config.words.preset == "original"
    original = original and not any(setting.startswith("rules") for setting in settings)
    return original, _find_player({"model": config.model.path})


def _find_player(manifest: Mapping[str, Any]) -> str | None:
    """The last player that the run, or a run before it, imitated."""
    if manifest.get("player"):
        return manifest["player"]
    stages = stages_of(locate(str(manifest.get("model"))))
    return next((stage["player"] for stage in reversed(stages) if stage.get("player")), None)
