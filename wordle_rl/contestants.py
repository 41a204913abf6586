"""The players of eval.py: a model, a run's checkpoint, or scripted players, on the same secrets."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from wordle_rl.backends import load_backend
from wordle_rl.build_parts import PLAYERS, build_backend_settings, build_model_settings
from wordle_rl.earlier_model import check_match, check_secrets, describe_untaught_prompt
from wordle_rl.eval_settings import EvalSettings
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.summary import summarise
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import Player, Speaker
from wordle_rl.game.players.gibberish import Gibberish
from wordle_rl.game.players.greedy_entropy import GreedyEntropy
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.players.random_word import RandomWord
from wordle_rl.game.players.tree import TreePlayer
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.lineage import describe_lineage
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Draws, Sampling, Stream
from wordle_rl.policy.settings import MAIN, UNTRAINED, ModelSettings
from wordle_rl.policy.stages import stages_of
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form, check_room
from wordle_rl.rollouts.given_opener import GivenOpener
from wordle_rl.rollouts.play import Actor, new_games, play
from wordle_rl.rollouts.policy_actor import build_actor
from wordle_rl.rollouts.scripted_actor import ScriptedActor
from wordle_rl.rollouts.shots import draw_shots
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.progress import GameCount, announce
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits

_GAMES_AT_ONCE = 512
_MOST_ALLOWED = 15_000  # up to so many allowed words, entropy over all of them is cheap enough


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A player and the rewards that score its games."""

    name: str
    actor: Callable[[int], Actor]  # makes the actor of a batch, from its first game's number
    rewards: RewardSet
    games_at_once: int = _GAMES_AT_ONCE
    lineage: str | None = None  # of a model, in one line
    samples: int | None = None  # games per secret, None for as many as the settings say

    def after(self, opener: str) -> Contestant:
        """The same contestant with a given first guess."""
        return replace(
            self,
            name=f"{self.name} after {opener}",
            actor=lambda first: GivenOpener(opener, self.actor(first)),
        )


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """The secrets and rules that every contestant plays."""

    knowledge: Knowledge
    regret: Regret
    rules: Rules
    style: PromptStyle  # how models are asked
    sampling: Sampling  # and how they draw their answers
    secrets: tuple[str, ...]
    starts: tuple[State, ...]  # where the game on each secret begins
    guesses: int  # most that were made before a game begins
    split: str
    settings: EvalSettings

    def games(self, contestant: Contestant) -> list[Game]:
        """Play all games of a contestant.

        With a time limit, games are played one at a time, so that each has its own clock.
        """
        limit = self.settings.time_limit
        most = contestant.games_at_once if limit is None else 1
        samples = contestant.samples or self.settings.samples
        secrets = [s for s in self.secrets for _ in range(samples)]
        starts = [s for s in self.starts for _ in range(samples)]
        games: list[Game] = []
        count = GameCount(len(secrets))
        with announce(lambda: f"{contestant.name}: {count}"):
            for first in range(0, len(secrets), most):
                now = slice(first, first + most)
                batch = new_games(secrets[now], self.knowledge.words, self.rules, starts[now])
                seconds = math.inf if limit is None else limit
                games += play(contestant.actor(first), batch, time_limit=seconds, watch=count.look)
                count.next_batch()
        return games

    def summary(self, contestant: Contestant) -> tuple[dict[str, Any], list[Game]]:
        """Play a contestant's games. Returns the summary and the games."""
        many = len(self.secrets) * (contestant.samples or self.settings.samples)
        print(f"{contestant.name} plays {many} games", flush=True)
        begin = time.monotonic()
        games = self.games(contestant)
        seconds = time.monotonic() - begin
        with announce(f"{contestant.name}: judging {len(games)} games"):
            summary = summarise(
                games, self.knowledge, player=contestant.name, split=self.split, rules=self.rules,
                seconds=seconds, regret=self.regret, rewards=contestant.rewards,
            )  # fmt: skip
        if contestant.lineage is not None:
            summary["lineage"] = contestant.lineage
        return summary, games

    def scripted(self, player: Player | Speaker, rewards: RewardSet) -> Contestant:
        """Enter a scripted player. It writes its guesses as in a conversation, whatever form=."""
        seed = self.settings.seed

        def actor(first: int) -> Actor:
            return ScriptedActor(
                player=player, draws=Draws(seed=seed, stream=Stream.EVALUATION, first_rollout=first)
            )

        return Contestant(name=player.name, actor=actor, rewards=rewards)


def build_player(settings: EvalSettings, knowledge: Knowledge) -> Player | Speaker | None:
    players: dict[str, Callable[[], Player | Speaker]] = {
        **{name: partial(player, knowledge) for name, player in PLAYERS.items()},
        "entropy": lambda: _entropy(knowledge, settings.opener),
        "random": lambda: RandomWord(knowledge.words),
        "gibberish": Gibberish,
        "tree": lambda: TreePlayer.from_file(Path(settings.tree or "")),
    }
    if settings.player is None:
        return None
    if settings.player not in players:
        raise ConfigError(f"player must be one of {', '.join(players)}, not {settings.player!r}")
    return players[settings.player]()


def check_opener(settings: EvalSettings, words: WordLists) -> None:
    if settings.opener is not None and settings.opener not in words.allowed_set:
        raise ConfigError(f"opener must be one of the allowed words, not {settings.opener!r}")


def _entropy(knowledge: Knowledge, opener: str | None = None) -> GreedyEntropy:
    """Greedy entropy after an opener. None: SALET if it is allowed, else the best first guess."""
    salet = "salet" if "salet" in knowledge.words.allowed_set else None
    return GreedyEntropy(knowledge, opener=opener or salet)


def build_solvers(knowledge: Knowledge) -> list[Player]:
    """The scripted players in every table, as lower and upper bounds.

    entropy_allowed takes 3 s more for the original lists. It is left out where it knows the same
    words as entropy, and where its table would take gigabytes.
    """
    words = knowledge.words
    unlike = len(words.answers) < len(words.allowed) <= _MOST_ALLOWED
    return [
        _entropy(knowledge),
        *([PLAYERS["entropy_allowed"](knowledge)] if unlike else []),
        RandomConsistent(knowledge, "answers"),
        RandomConsistent(knowledge, "allowed"),
        RandomWord(knowledge.words),
    ]


def build_contestants(
    config: dict[str, Any],
    tournament: Tournament,
    splits: Splits,
    rewards: RewardSet,
) -> tuple[list[Contestant], dict[str, Any]]:
    """Build the config's model. Returns the contestants, and a record of precision and threads.

    If the model plays several games per secret, its greedy games are the second contestant.
    """
    settings = tournament.settings
    model = choose_model(config, settings)
    style, sampling = tournament.style, tournament.sampling
    words = tournament.knowledge.words
    if not settings.allow_mismatch:
        check_match(model.location, style, ("form", settings.form), words)
    if warning := describe_untaught_prompt(model.location, style):
        print(warning, file=sys.stderr, flush=True)
    backend = build_backend_settings(config["backend"], model)
    if backend.devices > 1:
        raise ConfigError(f"backend.devices must be 1 in eval.py, not {backend.devices}")
    module = load_backend(backend)
    with announce(f"loading {model.path}"):
        policy = module.build_policy(model, backend, temperature=1.0, optim=Optim())
    for line in policy.computing.reasons:
        print(line, flush=True)
    knowledge = tournament.knowledge
    shots = draw_shots(settings.shots, splits.train, knowledge, tournament.rules, settings.seed)
    form = build_form(settings.form, Chat(policy.tokenizer), style, shots)
    check_room(form, sampling, model.max_context, guesses=tournament.guesses)

    def actor(first: int, sampling: Sampling = sampling) -> Actor:
        draws = Draws(seed=settings.seed, stream=Stream.EVALUATION, first_rollout=first)
        return build_actor(policy, form, sampling, draws)

    _warn_of_known_secrets(tournament, splits, model)
    contestant = Contestant(
        name=name_contestant(model, settings), actor=actor, rewards=rewards,
        games_at_once=model.games_at_once,
        lineage=describe_lineage(
            stages_of(model.location), words, splits, untrained=model.path == UNTRAINED
        ),
    )  # fmt: skip
    if settings.samples == 1:
        return [contestant], policy.computing.record()
    greedy = replace(
        contestant, name=f"greedy {contestant.name}", samples=1,
        actor=partial(actor, sampling=replace(sampling, temperature=0.0)),
    )  # fmt: skip
    return [contestant, greedy], policy.computing.record()


def _warn_of_known_secrets(tournament: Tournament, splits: Splits, model: ModelSettings) -> None:
    """Print a warning if training games of the model could have the secrets that it plays."""
    if tournament.split == "test":
        try:
            check_secrets("split", tournament.knowledge.words, splits, model.location)
        except ConfigError as error:
            print(f"warning: {error}", file=sys.stderr)
    elif tournament.split == "allowed":
        stages = stages_of(model.location)
        if any(s.get("protocol") == "allowed" or s.get("allowed_share") for s in stages):
            print("warning: training games of the model could have these secrets", file=sys.stderr)


def name_contestant(model: ModelSettings, settings: EvalSettings) -> str:
    """The name of what plays, with the number of examples it sees."""
    name = (
        _name_model(model)
        if settings.run is None
        else _name_run(settings.run, model, settings.checkpoint)
    )
    return f"{name}, {settings.shots} shots" if settings.shots else name


def _name_model(model: ModelSettings) -> str:
    stages = stages_of(model.location)
    return stages[-1]["run"] if stages and "embedded" not in stages[-1] else model.name


def _name_run(folder: str, model: ModelSettings, checkpoint: str) -> str:
    """The run, with its checkpoint unless that is the best."""
    run = RunFolder(Path(folder))
    played = Path(model.path).parent
    if checkpoint == "best":  # unless it was lost and another one is used
        best = CheckpointStore(run.checkpoints, read_only=True).best()
        checkpoint = "" if played == best else played.name
    return f"{run.path.name} {Path(checkpoint).name}".strip()


def choose_model(config: dict[str, Any], settings: EvalSettings) -> ModelSettings:
    """The model's settings. With a run, their path is in the chosen checkpoint."""
    if settings.run is None or settings.checkpoint == "start":
        return build_model_settings(config["model"])
    store = CheckpointStore(RunFolder(Path(settings.run)).checkpoints, read_only=True)
    if settings.checkpoint == "best":
        found = store.load_best()
    elif settings.checkpoint == "last":
        found = store.load_latest()
    else:
        path = ROOT / settings.checkpoint
        if not path.is_dir():
            raise ConfigError(
                f"checkpoint must be best, last, start or a checkpoint's folder, not {path}"
            )
        found = store.load(path)
    if found is None:
        raise ConfigError(f"{store.folder}: there is no {settings.checkpoint} checkpoint yet")
    path = str(found.path / "model")
    own = {"path": path, "revision": MAIN, "shape": {}, "lora": None}
    return build_model_settings({**config["model"], **own})
