"""The players that the page offers, each of them loaded when it is first asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wordle_rl.policy.settings import EMBEDDED
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.runs.paths import CONF
from wordle_rl.web.opponent import Opponent

SCRIPTED = {  # by their names in eval.py
    "entropy": "greedy entropy, which knows the answers",
    "entropy_allowed": "greedy entropy over all allowed words",
    "random_consistent": "a random answer that fits all clues",
    "random_consistent_allowed": "a random allowed word that fits all clues",
    "random": "a random allowed word",
}
RIVALS = ("start of the run", "entropy", "mini")  # keys, the best one to compare with first
CHECKPOINTS = {"best": "best checkpoint", "last": "last checkpoint", "start": "start"}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A player before it is loaded."""

    label: str  # its name for people
    settings: dict[str, str]  # of load_player: model, player, or run and checkpoint
    version: Callable[[], Path | None] = lambda: None  # the player is loaded anew when it changes


class Choices:
    """Players by their keys. Use it from one thread only."""

    def __init__(self, choices: dict[str, Choice], load: Callable[..., Opponent]) -> None:
        """choices: the player that was asked for comes first. load: takes a choice's settings."""
        self.choices, self._load = choices, load
        self._loaded: dict[str, tuple[Path | None, Opponent]] = {}

    def get(self, key: str) -> Opponent:
        """The player of a key. Raises ValueError in one line when it cannot be loaded."""
        choice = self.choices[key]
        version = choice.version()
        if key not in self._loaded or self._loaded[key][0] != version:
            self._loaded[key] = version, self._load(**choice.settings)
        return self._loaded[key][1]


def list_choices(
    *, model: str | None, player: str | None, run: RunFolder | None, checkpoint: str
) -> dict[str, Choice]:
    """Everybody that can be chosen, first the run's checkpoint, the model or the player named."""
    choices: dict[str, Choice] = {}
    if run is not None:  # its checkpoint, and its start to compare it with
        store = CheckpointStore(run.checkpoints, read_only=True)
        versions = {"best": store.best, "last": store.latest, "start": lambda: None}
        for name in dict.fromkeys([checkpoint, "start"]):
            choices[f"{name} of the run"] = Choice(
                label=f"{CHECKPOINTS[name]} of {given_name(run.path.name)}",
                settings={"run": str(run.path), "checkpoint": name},
                version=versions[name],
            )
    made = {path.parent.name for path in EMBEDDED.glob("*/config.json")}
    models = sorted(made & {path.stem for path in (CONF / "model").glob("*.yaml")})
    for name in [*models, *([model] if model else [])]:
        choices[name] = Choice(label=f"model {name}", settings={"model": name})
    for name, label in SCRIPTED.items():
        choices[name] = Choice(label=label, settings={"player": name})
    first = next(iter(choices)) if run else player or model or "mini"
    return {first: choices[first], **choices}
