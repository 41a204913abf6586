"""The players of play.py: a run's model, its start, the embedded models and the solvers.

Each is loaded as eval.py would load it, at its first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from wordle_rl.api import compose_config
from wordle_rl.build_parts import build_reward_set
from wordle_rl.contestants import build_contestants, build_player
from wordle_rl.earlier_run import read_saved_config
from wordle_rl.evaluate import add_run, build_tournament, read_settings
from wordle_rl.evaluation.turn_facts import TurnJudge
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.policy.model_names import EMBEDDED
from wordle_rl.rollouts.opponent import Opponent
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder, given_name
from wordle_rl.runs.instantiate import instantiate
from wordle_rl.runs.paths import CONF
from wordle_rl.web.lobby import Choice
from wordle_rl.words.lists import WordLists
from wordle_rl.words.settings import WordSettings

PLAYERS = {  # scripted ones that anybody can choose, by their name in eval.py
    "entropy": "greedy entropy, which knows the answers",
    "entropy_allowed": "greedy entropy over all allowed words",
    "random_consistent": "a random answer that fits all clues",
    "random_consistent_allowed": "a random allowed word that fits all clues",
    "random": "a random allowed word",
}
_LABELS = {"best": "best checkpoint", "last": "last checkpoint", "start": "start"}
CHECKPOINTS = tuple(_LABELS)


def list_models() -> list[str]:
    """The embedded models that need nothing else, the one of the demo first."""
    found = {path.parent.name for path in EMBEDDED.glob("*/config.json")}
    named = {path.stem for path in (CONF / "model").glob("*.yaml")}
    return sorted(found & named, key=lambda name: (name != "mini", name))


@dataclass(frozen=True, kw_only=True)
class Loader:
    """Loads players. Those with the same word lists share what they know."""

    _known: dict[str, Knowledge] = field(default_factory=dict)  # by the digest of the lists

    def load(self, *settings: str) -> Opponent:
        """The player that eval.py would evaluate with these settings. Raises ValueError."""
        config = add_run(compose_config("eval", settings), settings)
        chosen = read_settings(config)
        tournament, splits = build_tournament(config, chosen)
        knowledge = self._share(tournament.knowledge)
        tournament = replace(tournament, knowledge=knowledge)
        rewards = partial(build_reward_set, config["reward"], knowledge.words, knowledge)
        player = build_player(chosen, knowledge)
        if player is None:
            [contestant], _ = build_contestants(config, tournament, splits, rewards(chosen.form))
        else:
            contestant = tournament.scripted(player, rewards())
        return Opponent(
            name=contestant.name,
            knowledge=knowledge,
            rules=tournament.rules,
            rewards=contestant.rewards,
            secrets=tournament.secrets,
            new_actor=lambda: contestant.actor(0),
        )

    def judge(self, run: RunFolder) -> TurnJudge:
        """Computes the facts of turns on the word lists of a run. Raises ValueError."""
        settings = read_saved_config(run).words
        words, _ = instantiate("words", dict(settings), WordSettings).load()
        return TurnJudge(self._know(words))

    def _know(self, words: WordLists) -> Knowledge:
        known = self._known.get(words.digest)
        return known or self._share(Knowledge(words, feedback_table(words)))

    def _share(self, knowledge: Knowledge) -> Knowledge:
        return self._known.setdefault(knowledge.words.digest, knowledge)


def list_choices(
    loader: Loader, *, model: str | None, run: RunFolder | None, checkpoint: str, player: str | None
) -> list[Choice]:
    """All players, the one that was asked for first: a run's checkpoint, a model or a player."""
    choices = [] if run is None else _of_run(loader, run, checkpoint)
    models = list_models()
    choices += [
        Choice(key=name, label=f"model {name}", load=partial(loader.load, f"model={name}"))
        for name in [*models, *([model] if model and model not in models else [])]
    ]
    choices += [
        Choice(key=name, label=label, load=partial(loader.load, f"player={name}"))
        for name, label in PLAYERS.items()
    ]
    first = player or model
    return sorted(choices, key=lambda choice: choice.key != first) if first else choices


def _of_run(loader: Loader, run: RunFolder, checkpoint: str) -> list[Choice]:
    store = CheckpointStore(run.checkpoints, read_only=True)
    versions = {"best": store.best, "last": store.latest, "start": lambda: None}
    names = dict.fromkeys([checkpoint, "start"])
    return [
        Choice(
            key=f"run_{name}",
            label=f"{_LABELS[name]} of {given_name(run.path.name)}",
            load=partial(loader.load, f"run={run.path}", f"checkpoint={name}"),
            version=versions[name],
        )
        for name in names
    ]
