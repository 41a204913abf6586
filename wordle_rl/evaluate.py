"""The eval command: full games of a run, a model or a scripted player, beside the solvers."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from wordle_rl.boards import boards_side_by_side
from wordle_rl.build import (
    PLAYERS,
    backend_settings,
    check_keys,
    model_settings,
    resolve,
    style_of,
)
from wordle_rl.chat import Chat
from wordle_rl.checkpoints import CheckpointStore
from wordle_rl.cli import full_disk_told, user_errors
from wordle_rl.components import MOST, ConfigError, check_above_zero, check_range, component
from wordle_rl.earlier_run import adopt, check_match, form_of_run, keys_of, saved_config
from wordle_rl.feedback_table import feedback_table
from wordle_rl.forms import check_room, form_of
from wordle_rl.game import Game, Rules
from wordle_rl.game_statistics import summarise, write_games, write_summary
from wordle_rl.knowledge import Knowledge
from wordle_rl.optim import Optim
from wordle_rl.players import Player
from wordle_rl.players.gibberish import Gibberish
from wordle_rl.players.greedy_entropy import GreedyEntropy
from wordle_rl.players.random_consistent import RandomConsistent
from wordle_rl.players.random_word import RandomWord
from wordle_rl.players.tree import TreePlayer
from wordle_rl.policy_actor import PolicyActor
from wordle_rl.prompts import PromptStyle
from wordle_rl.regret import Regret
from wordle_rl.rollout import Actor, ScriptedActor, play
from wordle_rl.run import ROOT, load_backend
from wordle_rl.run_folder import RunFolder
from wordle_rl.sampling import Sampling
from wordle_rl.settings import (
    FORMS,
    MOST_GAMES,
    MOST_SAMPLES,
    ModelSettings,
    WordSettings,
    check_choice,
    check_seed,
)
from wordle_rl.tables import table
from wordle_rl.words import WordLists

KEYS = {
    *("model", "backend", "prompt", "words", "rules", "sampling", "run", "checkpoint", "player"),
    *("opener", "tree", "compare", "samples", "limit", "time_limit", "show", "seed", "output_dir"),
    *("form", "allow_mismatch"),
}
_FROM_RUN = ("model", "prompt", "words", "rules")  # taken from a run unless overridden
_GAMES_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What to play; see conf/eval.yaml."""

    run: str | None = None
    checkpoint: str = "best"
    player: str | None = None
    form: str = "conversation"
    allow_mismatch: bool = False
    opener: str = "salet"
    tree: str | None = None
    compare: bool = True
    samples: int = 1
    limit: int | None = None
    time_limit: float = 60.0
    show: int = 4
    seed: int = 0
    output_dir: str = "outputs"

    def __post_init__(self) -> None:
        if self.player is not None and self.run is not None:
            raise ValueError("player and run exclude each other: give one of them")
        if self.player == "tree" and self.tree is None:
            raise ValueError("player=tree needs tree=<file of a decision tree>")
        if self.opener != "salet" and self.player != "entropy":
            raise ValueError("opener is for player=entropy")
        if self.checkpoint != "best" and self.run is None:
            raise ValueError(f"checkpoint={self.checkpoint} needs run=<the run that it is of>")
        check_choice("form", self.form, FORMS)
        check_seed("seed", self.seed)
        check_range("samples", self.samples, 1, MOST_SAMPLES)
        check_range("show", self.show, 0, MOST_GAMES)
        if self.limit is not None:
            check_range("limit", self.limit, 1, MOST)
        check_above_zero("time_limit", self.time_limit, MOST, unit=" seconds")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Where the games are played."""

    knowledge: Knowledge
    regret: Regret
    rules: Rules
    secrets: tuple[str, ...]
    split: str
    settings: EvalSettings

    def games(self, new_actor: Callable[[int], Actor], most: int) -> tuple[list[Game], float, int]:
        """All games, the seconds they took, and how many ran out of time.

        new_actor: the actor of a batch of at most `most` games, given the number of its first one.
        """
        secrets = [s for s in self.secrets for _ in range(self.settings.samples)]
        games: list[Game] = []
        late = 0
        begin = time.monotonic()
        for first in range(0, len(secrets), most):
            start = time.monotonic()
            part = play(
                new_actor(first),
                secrets[first : first + most],
                words=self.knowledge.words,
                rules=self.rules,
                time_limit=self.settings.time_limit,
            )
            if time.monotonic() - start >= self.settings.time_limit:
                late += sum(not g.won and g.state.turn < self.rules.max_turns for g in part)
            games += part
        return games, time.monotonic() - begin, late

    def summary(
        self, name: str, new_actor: Callable[[int], Actor], most: int = _GAMES_AT_ONCE
    ) -> tuple[dict, list[Game]]:
        games, seconds, late = self.games(new_actor, most)
        summary = summarise(
            games, self.knowledge, player=name, split=self.split, rules=self.rules,
            seconds=seconds, timed_out=late, regret=self.regret,
        )  # fmt: skip
        return summary, games

    def scripted(self, player: Player) -> tuple[str, Callable[[int], Actor]]:
        """What summary() needs for a scripted player."""
        seed = self.settings.seed
        return player.name, lambda first: ScriptedActor(player=player, seed=seed, step=first)


@full_disk_told()
def evaluate(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Play, print the table, write summary.json and games.jsonl; returns the summary."""
    with user_errors():
        config = _with_run(cfg, overrides)
        check_keys(config, KEYS)
        own = {k: v for k, v in config.items() if k in EvalSettings.__dataclass_fields__}
        target = {"_target_": f"{__name__}.EvalSettings"}
        settings: EvalSettings = component("", target | own, EvalSettings)
        words, splits = component("words", config["words"], WordSettings).load()
        knowledge = Knowledge(words, feedback_table(words))
        split = config["words"]["split"]
        rules: Rules = component("rules", config["rules"], Rules)
        board = Table(
            knowledge=knowledge,
            regret=Regret(knowledge, rules.max_turns, settings.tree),
            rules=rules,
            secrets=splits.secrets(split)[: settings.limit],
            split=split,
            settings=settings,
        )
        player, computing = _player(settings, knowledge), None
        style, sampling = style_of(config), component("sampling", config["sampling"], Sampling)
        if player is None:
            contestant, computing = _model(config, settings, style, sampling, words)
        else:
            contestant = (*board.scripted(player), _GAMES_AT_ONCE)
        folder = RunFolder.create(ROOT / settings.output_dir, "eval").path
    many = len(board.secrets) * settings.samples
    print(f"{contestant[0]} plays {many} games", flush=True)
    summary, games = board.summary(*contestant)
    summaries = [summary]
    if settings.compare:
        summaries += [
            board.summary(*board.scripted(other))[0]
            for other in _solvers(knowledge)
            if player is None or other.name != player.name
        ]
    write_games(folder, games)
    shown = [g for g in games if not g.won][: settings.show // 2]
    shown += games[: settings.show - len(shown)]
    print(boards_side_by_side(shown, colour=sys.stdout.isatty()), "\n")
    print(table(summaries), f"\n\n{folder}")
    summary["computing"] = computing
    summary["compared_with"] = {
        s["player"]: {k: s[k] for k in ("win_rate", "mean_guesses", "mean_guesses_losses_as_7")}
        for s in summaries[1:]
    }
    written = write_summary(folder, summary)
    print(json.dumps(json.loads(written.read_bytes()), ensure_ascii=False))
    return summary


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


def _player(settings: EvalSettings, knowledge: Knowledge) -> Player | None:
    players: dict[str, Callable[[], Player]] = {
        **{name: partial(player, knowledge) for name, player in PLAYERS.items()},
        "entropy": lambda: GreedyEntropy(knowledge, opener=settings.opener),
        "random": lambda: RandomWord(knowledge.words),
        "gibberish": Gibberish,
        "tree": lambda: TreePlayer.from_file(Path(settings.tree or "")),
    }
    if settings.player is None:
        return None
    if settings.player not in players:
        raise ConfigError(f"player must be one of {', '.join(players)}, not {settings.player!r}")
    return players[settings.player]()


def _solvers(knowledge: Knowledge) -> list[Player]:
    """The floors and ceilings that every table shows."""
    opener = "salet" if "salet" in knowledge.words.allowed_set else None
    return [
        GreedyEntropy(knowledge, opener=opener),
        RandomConsistent(knowledge, "answers"),
        RandomConsistent(knowledge, "allowed"),
        RandomWord(knowledge.words),
    ]


def _model(
    config: dict[str, Any],
    settings: EvalSettings,
    style: PromptStyle,
    sampling: Sampling,
    words: WordLists,
) -> tuple[tuple[str, Callable[[int], PolicyActor], int], dict[str, Any]]:
    """What Table.summary() needs for a model, and the record of its precision and threads.

    Table.summary() needs the name, the actors, and how many games each actor can play.
    """
    model = _model_settings(config, settings)
    if not settings.allow_mismatch:
        check_match(model.location, style, ("form", settings.form), words)
    backend = backend_settings(config["backend"], model)
    if backend.devices > 1:
        raise ConfigError(f"backend.devices must be 1 in eval.py, not {backend.devices}")
    policy = load_backend(backend).build_policy(model, backend, temperature=1.0, optim=Optim())
    for line in policy.computing.reasons:
        print(line, flush=True)
    chat = Chat(policy.tokenizer)
    check_room(form_of(settings.form, chat, style), sampling, model.max_context)

    def actor(first: int) -> PolicyActor:
        return PolicyActor(
            engine=policy.engine(), chat=chat, style=style, form=settings.form, sampling=sampling,
            seed=settings.seed, first_rollout=first,
        )  # fmt: skip

    return (_name(model, settings), actor, model.games_at_once), policy.computing.record()


def _name(model: ModelSettings, settings: EvalSettings) -> str:
    """What plays: a model, or a run and which of its checkpoints if that is not the best."""
    if settings.run is None:
        return model.name
    checkpoint = "" if settings.checkpoint == "best" else f" {Path(settings.checkpoint).name}"
    return Path(settings.run).name + checkpoint


def _model_settings(config: dict[str, Any], settings: EvalSettings) -> ModelSettings:
    """The model's settings, pointing into the run's checkpoint if there is a run."""
    if settings.run is None or settings.checkpoint == "start":
        return model_settings(config["model"])
    store = CheckpointStore(RunFolder(Path(settings.run)).checkpoints, read_only=True)
    if settings.checkpoint == "best":
        path = store.best()
    elif settings.checkpoint == "last":
        found = store.load_latest()
        path = found.path if found else None
    else:
        path = ROOT / settings.checkpoint
        if not path.is_dir():
            raise ConfigError(
                f"checkpoint must be best, last, start or a checkpoint's folder, not {path}"
            )
    if path is None:
        raise ConfigError(f"{store.folder}: there is no {settings.checkpoint} checkpoint yet")
    path = store.load(path).path / "model"
    return model_settings({**config["model"], "path": str(path), "shape": {}, "lora": None})
