"""The eval command: full games of a run, a model or a scripted player, beside the solvers."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from wordle_rl.backends import load_backend
from wordle_rl.build import (
    PLAYERS,
    build_backend_settings,
    build_model_settings,
    build_reward_set,
    build_style,
    check_keys,
    resolve,
)
from wordle_rl.earlier_run import (
    adopt,
    check_match,
    check_secrets,
    form_of_run,
    keys_of,
    saved_config,
)
from wordle_rl.evaluation.boards import boards_side_by_side
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.report_table import report_table
from wordle_rl.evaluation.summary import summarise, write_games, write_summary
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players.base import Player, Speaker
from wordle_rl.game.players.gibberish import Gibberish
from wordle_rl.game.players.greedy_entropy import GreedyEntropy
from wordle_rl.game.players.random_consistent import RandomConsistent
from wordle_rl.game.players.random_word import RandomWord
from wordle_rl.game.players.tree import TreePlayer
from wordle_rl.game.rules import Game, Rules
from wordle_rl.policy.engine import NotFinite
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Sampling, Stream
from wordle_rl.policy.settings import ModelSettings
from wordle_rl.policy.stages import stages_of
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import FORMS, check_room, form_of
from wordle_rl.rollouts.given_opener import GivenOpener
from wordle_rl.rollouts.play import Actor, play
from wordle_rl.rollouts.policy_actor import PolicyActor
from wordle_rl.rollouts.scripted_actor import ScriptedActor
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.checks import MOST_GAMES, MOST_SAMPLES, check_choice, check_seed
from wordle_rl.runs.errors import fail, full_disk_told, user_errors
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import MOST, ConfigError, check_above_zero, check_range, instantiate
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.progress import GameCount, told
from wordle_rl.words.lists import WordLists
from wordle_rl.words.settings import WordSettings
from wordle_rl.words.splits import Splits

KEYS = {
    *("model", "backend", "prompt", "reward", "words", "rules", "sampling"),
    *("run", "checkpoint", "player"),
    *("opener", "tree", "compare", "samples", "limit", "time_limit", "show", "seed", "output_dir"),
    *("form", "allow_mismatch"),
}
_FROM_RUN = ("model", "prompt", "reward", "words", "rules")  # taken from a run unless overridden
_GAMES_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What to play; see conf/eval.yaml."""

    run: str | None = None
    checkpoint: str = "best"
    player: str | None = None
    form: str = "conversation"
    allow_mismatch: bool = False
    opener: str | None = None
    tree: str | None = None
    compare: bool = True
    samples: int = 1
    limit: int | None = None
    time_limit: float | None = None
    show: int = 4
    seed: int = 0
    output_dir: str = "outputs"

    def __post_init__(self) -> None:
        if self.player is not None and self.run is not None:
            raise ValueError("player and run exclude each other: give one of them")
        if self.player == "tree" and self.tree is None:
            raise ValueError("player=tree needs tree=<file of a decision tree>")
        if self.player == "tree" and self.opener is not None:
            raise ValueError("player=tree and opener exclude each other: a tree has its own opener")
        if self.checkpoint != "best" and self.run is None:
            raise ValueError(f"checkpoint={self.checkpoint} needs run=<the run that it is of>")
        check_choice("form", self.form, FORMS)
        check_seed("seed", self.seed)
        check_range("samples", self.samples, 1, MOST_SAMPLES)
        check_range("show", self.show, 0, MOST_GAMES)
        if self.limit is not None:
            check_range("limit", self.limit, 1, MOST)
        if self.time_limit is not None:
            check_above_zero("time_limit", self.time_limit, MOST, unit=" seconds")


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Who plays, and what its answers are worth."""

    name: str
    actor: Callable[[int], Actor]  # of a batch of games, given the number of the first one
    rewards: RewardSet
    games_at_once: int = _GAMES_AT_ONCE

    def after(self, opener: str) -> Contestant:
        """The same with its first guess given."""
        return replace(
            self,
            name=f"{self.name} after {opener}",
            actor=lambda first: GivenOpener(opener, self.actor(first)),
        )


@dataclass(frozen=True, kw_only=True)
class Table:
    """Where the games are played."""

    knowledge: Knowledge
    regret: Regret
    rules: Rules
    secrets: tuple[str, ...]
    split: str
    settings: EvalSettings

    def games(self, contestant: Contestant) -> list[Game]:
        """All games of a contestant.

        With a time limit they are played one after the other, so that a game's time is its own.
        """
        limit = self.settings.time_limit
        most = contestant.games_at_once if limit is None else 1
        secrets = [s for s in self.secrets for _ in range(self.settings.samples)]
        games: list[Game] = []
        count = GameCount(len(secrets))
        with told(lambda: f"{contestant.name}: {count}"):
            for first in range(0, len(secrets), most):
                games += play(
                    contestant.actor(first), secrets[first : first + most],
                    words=self.knowledge.words, rules=self.rules,
                    time_limit=math.inf if limit is None else limit, look=count.batch(),
                )  # fmt: skip
        return games

    def summary(self, contestant: Contestant) -> tuple[dict[str, Any], list[Game]]:
        """The summary of a contestant, and its games."""
        many = len(self.secrets) * self.settings.samples
        print(f"{contestant.name} plays {many} games", flush=True)
        begin = time.monotonic()
        games = self.games(contestant)
        seconds = time.monotonic() - begin
        with told(f"{contestant.name}: judging {len(games)} games"):
            summary = summarise(
                games, self.knowledge, player=contestant.name, split=self.split, rules=self.rules,
                seconds=seconds, regret=self.regret, rewards=contestant.rewards,
            )  # fmt: skip
        return summary, games

    def scripted(self, player: Player | Speaker, rewards: RewardSet) -> Contestant:
        """A scripted player, which writes its guesses as in a conversation, whatever form= is."""
        seed = self.settings.seed

        def actor(first: int) -> Actor:
            return ScriptedActor(
                player=player, seed=seed, stream=Stream.EVALUATION, first_rollout=first
            )

        return Contestant(name=player.name, actor=actor, rewards=rewards)


@full_disk_told()
def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, print the table, write summary.json and games.jsonl; returns the summary."""
    with user_errors():
        config = _with_run(cfg, overrides)
        check_keys(config, KEYS)
        own = {k: v for k, v in config.items() if k in EvalSettings.__dataclass_fields__}
        target = {"_target_": f"{__name__}.EvalSettings"}
        settings: EvalSettings = instantiate("", target | own, EvalSettings)
        words, splits = instantiate("words", config["words"], WordSettings).load()
        knowledge = Knowledge(words, feedback_table(words))
        split = config["words"]["split"]
        rules: Rules = instantiate("rules", config["rules"], Rules)
        board = Table(
            knowledge=knowledge,
            regret=Regret(knowledge, rules.max_turns, settings.tree),
            rules=rules,
            secrets=splits.secrets(split)[: settings.limit],
            split=split,
            settings=settings,
        )
        _check_opener(settings, words)
        style = build_style(config, rules)
        sampling = instantiate("sampling", config["sampling"], Sampling)
        rewards = partial(build_reward_set, config["reward"], words, knowledge)
        player, computing = _player(settings, knowledge), None
        who = settings.run or settings.player or config["model"]["path"]
        print(f"evaluation of {who} on {len(board.secrets)} {split} secrets", flush=True)
        if player is None:
            judged = rewards(settings.form)
            contestant, computing = _model(config, settings, words, splits, style, sampling, judged)
        else:
            contestant = board.scripted(player, rewards())
        if settings.opener is not None and settings.player != "entropy":
            contestant = contestant.after(settings.opener)
        folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    with _broken_weights_told():
        summary, games = board.summary(contestant)
    summaries = [summary]
    if settings.compare:
        summaries += [
            board.summary(board.scripted(other, rewards()))[0]
            for other in _solvers(knowledge)
            if player is None or other.name != player.name
        ]
    if late := sum(one["out_of_time"] for one in summaries):
        print(f"warning: {late} games ran out of time and count as lost", file=sys.stderr)
    write_games(folder, games)
    shown = [g for g in games if not g.won][: settings.show // 2]
    shown += [g for g in games if g not in shown][: settings.show - len(shown)]
    print(boards_side_by_side(shown, colour=sys.stdout.isatty()), "\n")
    print(report_table(summaries), f"\n\n{folder}")
    summary["computing"] = computing
    summary["compared_with"] = {
        s["player"]: {k: s[k] for k in ("win_rate", "mean_guesses", "mean_guesses_with_losses")}
        for s in summaries[1:]
    }
    written = write_summary(folder, summary)
    print(json.dumps(json.loads(written.read_bytes()), ensure_ascii=False))
    return summary


@contextmanager
def _broken_weights_told() -> Iterator[None]:
    try:
        yield
    except NotFinite as error:
        fail(f"{error}: the weights of the model may be broken")


def _with_run(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """The config, with what a run was trained with where the command line says nothing."""
    given = keys_of(overrides)
    if cfg.player is not None and "model" in given:
        raise ConfigError("player and model exclude each other: give one of them")
    if cfg.run is None:
        return resolve(cfg)
    folder = RunFolder.open(ROOT / str(cfg.run))
    saved = saved_config(folder)
    if other := [key for key in sorted(given) if re.match(r"model$|model\.(path|lora|shape)", key)]:
        raise ConfigError(f"{other[0]} and run exclude each other: a run has its own model")
    # A run's checkpoints are of its backend's kind; how that computes is up to this command.
    other = saved.backend._target_ != cfg.backend._target_
    for node in (*_FROM_RUN, *["backend"] * other):
        adopt(cfg, saved, node, given)
    config = resolve(cfg)
    if "form" not in given:
        config["form"] = form_of_run(saved)
    if "words" not in given and "words.split" not in given:
        config["words"]["split"] = "all" if config["words"]["protocol"] == "all" else "test"
    config["run"] = str(folder.path)
    return config


def _player(settings: EvalSettings, knowledge: Knowledge) -> Player | Speaker | None:
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


def _check_opener(settings: EvalSettings, words: WordLists) -> None:
    if settings.opener is not None and settings.opener not in words.allowed_set:
        raise ConfigError(f"opener must be one of the allowed words, not {settings.opener!r}")


def _entropy(knowledge: Knowledge, opener: str | None = None) -> GreedyEntropy:
    """Greedy entropy from an opener; None for SALET, or for the best first guess without it."""
    salet = "salet" if "salet" in knowledge.words.allowed_set else None
    return GreedyEntropy(knowledge, opener=opener or salet)


def _solvers(knowledge: Knowledge) -> list[Player]:
    """The floors and ceilings that every table shows."""
    return [
        _entropy(knowledge),
        RandomConsistent(knowledge, "answers"),
        RandomConsistent(knowledge, "allowed"),
        RandomWord(knowledge.words),
    ]


def _model(
    config: dict[str, Any],
    settings: EvalSettings,
    words: WordLists,
    splits: Splits,
    style: PromptStyle,
    sampling: Sampling,
    rewards: RewardSet,
) -> tuple[Contestant, dict[str, Any]]:
    """A model, and the record of its precision and threads."""
    model = _model_settings(config, settings)
    if not settings.allow_mismatch:
        check_match(model.location, style, ("form", settings.form), words)
    backend = build_backend_settings(config["backend"], model)
    if backend.devices > 1:
        raise ConfigError(f"backend.devices must be 1 in eval.py, not {backend.devices}")
    module = load_backend(backend)
    with told(f"loading {model.path}"):
        policy = module.build_policy(model, backend, temperature=1.0, optim=Optim())
    for line in policy.computing.reasons:
        print(line, flush=True)
    chat = Chat(policy.tokenizer)
    check_room(form_of(settings.form, chat, style), sampling, model.max_context)

    def actor(first: int) -> Actor:
        return PolicyActor(
            engine=policy.engine(), chat=chat, style=style, form=settings.form, sampling=sampling,
            seed=settings.seed, stream=Stream.EVALUATION, first_rollout=first,
        )  # fmt: skip

    if config["words"]["split"] == "test":
        try:
            check_secrets("split", splits, model.location)
        except ConfigError as error:
            print(f"warning: {error}", file=sys.stderr)
    contestant = Contestant(
        name=_name(model, settings), actor=actor, rewards=rewards,
        games_at_once=model.games_at_once,
    )  # fmt: skip
    return contestant, policy.computing.record()


def _name(model: ModelSettings, settings: EvalSettings) -> str:
    """What plays: a model, or a run and which of its checkpoints if that is not the best."""
    if settings.run is None:
        stages = stages_of(model.location)
        return stages[-1]["run"] if stages else model.name
    run, checkpoint = RunFolder(Path(settings.run)), settings.checkpoint
    played = Path(model.path).parent
    if checkpoint == "best":  # unless another one had to take its place
        best = CheckpointStore(run.checkpoints, read_only=True).best()
        checkpoint = "" if played == best else played.name
    return f"{run.path.name} {Path(checkpoint).name}".strip()


def _model_settings(config: dict[str, Any], settings: EvalSettings) -> ModelSettings:
    """The model's settings, pointing into the run's checkpoint if there is a run."""
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
    return build_model_settings({**config["model"], "path": path, "shape": {}, "lora": None})
