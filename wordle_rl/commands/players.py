"""The players of eval.py and of programs: a run's model, another model, or a scripted player.

They are loaded with the settings of conf/eval.yaml and play the same secrets by the same rules.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from wordle_rl.adapters.api import compose_config
from wordle_rl.backends import load_backend
from wordle_rl.commands.build import check_keys, resolve
from wordle_rl.commands.build_parts import (
    PLAYERS,
    build_backend_settings,
    build_history,
    build_model_settings,
    build_style,
)
from wordle_rl.commands.earlier_model import check_match, check_secrets, describe_untaught_prompt
from wordle_rl.commands.eval_settings import EvalSettings
from wordle_rl.commands.resume import adopt, list_keys, read_saved_config
from wordle_rl.evaluation.regret import Regret
from wordle_rl.evaluation.summary import summarise
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import (
    Gibberish,
    GreedyEntropy,
    Player,
    RandomConsistent,
    RandomWord,
    TreePlayer,
)
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.lineage import describe_lineage
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Draws, Sampling, Stream
from wordle_rl.policy.settings import MAIN, UNTRAINED, ModelSettings
from wordle_rl.policy.stages import stages_of
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.build import build_reward_set
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import build_form, check_room
from wordle_rl.rollouts.given_opener import GivenOpener
from wordle_rl.rollouts.history import fixed_states
from wordle_rl.rollouts.play import Actor, Reply, new_games, play
from wordle_rl.rollouts.policy_actor import build_actor
from wordle_rl.rollouts.scripted_actor import ScriptedActor
from wordle_rl.rollouts.shots import draw_shots
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.runs.listing import find_run
from wordle_rl.runs.paths import ROOT
from wordle_rl.training.progress import GameCount, announce
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits, WordSettings

_GAMES_AT_ONCE = 512
_MOST_ALLOWED = 15_000  # up to so many allowed words, entropy over all of them is cheap enough
_FOR_TRAINING = {"optim", "rollout", "num_generations"}  # a model's file may choose these
_FROM_RUN = ("model", "prompt", "reward", "words", "rules")  # taken from a run unless overridden
_PARTS = {"model", "backend", "prompt", "reward", "words", "rules", "sampling", "history"}


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
    splits: Splits
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

    def scripted(self, player: Player, rewards: RewardSet) -> Contestant:
        """Enter a scripted player. It writes its guesses as in a conversation, whatever form=."""
        seed = self.settings.seed

        def actor(first: int) -> Actor:
            return ScriptedActor(
                player=player, draws=Draws(seed=seed, stream=Stream.EVALUATION, first_rollout=first)
            )

        return Contestant(name=player.name, actor=actor, rewards=rewards)


def build_player(settings: EvalSettings, knowledge: Knowledge) -> Player | None:
    """The scripted player of the settings, None for a model. Raises ConfigError."""
    if settings.opener is not None and settings.opener not in knowledge.words.allowed_set:
        raise ConfigError(f"opener must be one of the allowed words, not {settings.opener!r}")
    if settings.player is None:
        return None
    players: dict[str, Callable[[], Player]] = {
        **{name: partial(player, knowledge) for name, player in PLAYERS.items()},
        "entropy": lambda: _entropy(knowledge, settings.opener),
        "random": lambda: RandomWord(knowledge.words),
        "gibberish": Gibberish,
        "tree": lambda: TreePlayer.from_file(Path(settings.tree or "")),
    }
    if settings.player not in players:
        raise ConfigError(f"player must be one of {', '.join(players)}, not {settings.player!r}")
    return players[settings.player]()


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
    config: dict[str, Any], tournament: Tournament
) -> tuple[list[Contestant], dict[str, Any] | None]:
    """Build the config's player, and record how a model computes: its precision and threads.

    If a model plays several games per secret, its greedy games are the second contestant.
    """
    settings, knowledge = tournament.settings, tournament.knowledge
    player = build_player(settings, knowledge)
    form = settings.form if player is None else "conversation"
    rewards = build_reward_set(config["reward"], knowledge.words, knowledge, form)
    if player is not None:
        return [tournament.scripted(player, rewards)], None
    model = choose_model(config, settings)
    style, sampling, words = tournament.style, tournament.sampling, knowledge.words
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
    train = tournament.splits.train
    shots = draw_shots(settings.shots, train, knowledge, tournament.rules, settings.seed)
    talk = build_form(settings.form, Chat(policy.tokenizer), style, shots)
    check_room(talk, sampling, model.max_context, guesses=tournament.guesses)

    def actor(first: int, sampling: Sampling = sampling) -> Actor:
        draws = Draws(seed=settings.seed, stream=Stream.EVALUATION, first_rollout=first)
        return build_actor(policy, talk, sampling, draws)

    _warn_of_known_secrets(tournament, model)
    contestant = Contestant(
        name=_name_contestant(model, settings), actor=actor, rewards=rewards,
        games_at_once=model.games_at_once,
        lineage=describe_lineage(
            stages_of(model.location), words, tournament.splits,
            untrained=model.path == UNTRAINED,
        ),
    )  # fmt: skip
    if settings.samples == 1:
        return [contestant], policy.computing.record()
    greedy = replace(
        contestant, name=f"greedy {contestant.name}", samples=1,
        actor=partial(actor, sampling=replace(sampling, temperature=0.0)),
    )  # fmt: skip
    return [contestant, greedy], policy.computing.record()


def _warn_of_known_secrets(tournament: Tournament, model: ModelSettings) -> None:
    """Print a warning if training games of the model could have the secrets that it plays."""
    if tournament.split == "test":
        try:
            words = tournament.knowledge.words
            check_secrets("split", words, tournament.splits, model.location)
        except ConfigError as error:
            print(f"warning: {error}", file=sys.stderr)
    elif tournament.split == "allowed":
        stages = stages_of(model.location)
        if any(s.get("protocol") == "allowed" or s.get("allowed_share") for s in stages):
            print("warning: training games of the model could have these secrets", file=sys.stderr)


def _name_contestant(model: ModelSettings, settings: EvalSettings) -> str:
    """The run with its checkpoint unless that is the best, or the model; and its examples."""
    if settings.run is None:
        stages = stages_of(model.location)
        name = stages[-1]["run"] if stages and "embedded" not in stages[-1] else model.name
    else:
        run, played = RunFolder(Path(settings.run)), Path(model.path).parent
        checkpoint = settings.checkpoint
        if checkpoint == "best":  # unless it was lost and another one is used
            best = CheckpointStore(run.checkpoints, read_only=True).best()
            checkpoint = "" if played == best else played.name
        name = f"{run.path.name} {Path(checkpoint).name}".strip()
    return f"{name}, {settings.shots} shots" if settings.shots else name


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


def add_run(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Resolve the config. A run's settings apply unless the command line overrides them."""
    given = list_keys(overrides)
    if not _FOR_TRAINING & {key.partition(".")[0] for key in given}:
        with open_dict(cfg):
            for part in _FOR_TRAINING:
                cfg.pop(part, None)
    if cfg.player is not None and "model" in given:
        raise ConfigError("player and model exclude each other: give one of them")
    if cfg.run is None:
        return resolve(cfg)
    folder = find_run(str(cfg.run), "run", ROOT, ROOT / str(cfg.output_dir))
    saved = read_saved_config(folder)
    if other := [key for key in sorted(given) if re.match(r"model$|model\.(path|lora|shape)", key)]:
        raise ConfigError(f"{other[0]} and run exclude each other: a run has its own model")
    # Checkpoints need their run's backend, but this command chooses how that computes.
    other = saved.backend._target_ != cfg.backend._target_
    for node in (*_FROM_RUN, *["backend"] * other):
        adopt(cfg, saved, node, given)
    config = resolve(cfg)
    if "form" not in given:
        config["form"] = saved.rollout.form
    if "words" not in given and "words.split" not in given:
        config["words"]["split"] = "all" if config["words"]["protocol"] == "all" else "test"
    config["run"] = str(folder.path)
    return config


def read_settings(config: dict[str, Any]) -> EvalSettings:
    """The settings of this command alone. Raises ConfigError for a config that lacks a part."""
    check_keys(config, _PARTS | set(EvalSettings.__dataclass_fields__))
    own = {k: v for k, v in config.items() if k in EvalSettings.__dataclass_fields__}
    target = {"_target_": f"{EvalSettings.__module__}.EvalSettings"}
    return instantiate("", target | own, EvalSettings)


def build_tournament(config: dict[str, Any], settings: EvalSettings) -> Tournament:
    """What every contestant plays. Raises ConfigError."""
    listed: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = listed.load()
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", config["rules"], Rules)
    # A scripted player does not sample, but wrong settings are refused all the same.
    sampling: Sampling = instantiate("sampling", config["sampling"], Sampling)
    if settings.samples > 1 and settings.player is None and sampling.temperature == 0.0:
        raise ConfigError(
            "sampling.temperature must be above 0 where samples is above 1, because greedy games "
            "on one secret are all alike, not 0: add sampling=default"
        )
    history = build_history(config["history"], knowledge, rules)
    if history is not None:
        settings.check_history()
    secrets = listed.eval_secrets(words, splits)[: settings.limit]
    return Tournament(
        knowledge=knowledge,
        regret=Regret(knowledge, rules.max_turns, settings.tree),
        rules=rules,
        style=build_style(config, rules),
        sampling=sampling,
        splits=splits,
        secrets=secrets,
        starts=fixed_states(history, secrets, seed=settings.seed, max_turns=rules.max_turns),
        guesses=history.most if history else 0,
        split=listed.split,
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True)
class LoadedPlayer:
    """A player, with the words, rules, prompt and rewards that it plays by."""

    tournament: Tournament
    contestant: Contestant

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.contestant.name

    @property
    def lineage(self) -> str | None:
        """How a model was made, in one line; None for a scripted player."""
        return self.contestant.lineage

    @property
    def splits(self) -> Splits:
        """Training, validation and test secrets."""
        return self.tournament.splits

    @property
    def words(self) -> WordLists:
        return self.tournament.knowledge.words

    @property
    def knowledge(self) -> Knowledge:
        return self.tournament.knowledge

    @property
    def rules(self) -> Rules:
        return self.tournament.rules

    @property
    def rewards(self) -> RewardSet:
        """What its games earn, such as player.rewards.score(game).total."""
        return self.contestant.rewards

    @property
    def style(self) -> PromptStyle:
        """The prompt that a model gets. A scripted player reads the board itself."""
        return self.tournament.style

    def play(
        self, secrets: Sequence[str], *, starts: Sequence[State] | None = None, first: int = 0
    ) -> list[Game]:
        """Play a game on each secret to its end, many side by side. Returns them in this order.

        starts: the board that each game begins with, None for empty boards. first: number of the
        first game. Games with other numbers draw other random numbers, so first=len(secrets) plays
        the same secrets a second time.
        """
        for secret in secrets:
            if self.rules.invalid != "accept" and secret not in self.words.allowed_set:
                raise ValueError(f"secrets must be allowed words in lower case, not {secret!r}")
        games = new_games(secrets, self.words, self.rules, starts)
        most = self.contestant.games_at_once
        for start in range(0, len(games), most):
            play(self.contestant.actor(first + start), games[start : start + most])
        return games

    def answers(self, states: Sequence[State], *, first: int = 0) -> list[Reply | None]:
        """One answer on each board: its text, and what was read from it.

        None where a board leaves no room for an answer in the model's context. first: as in play.
        """
        replies: list[Reply | None] = [None] * len(states)
        most = self.contestant.games_at_once
        for start in range(0, len(states), most):
            batch = states[start : start + most]
            actor = self.contestant.actor(first + start)
            begun = [i for i, fits in enumerate(actor.start(batch)) if fits]
            for turn in sorted({batch[i].turn for i in begun}):
                games = [i for i in begun if batch[i].turn == turn]
                drawn = actor.answer(games, [batch[i] for i in games], turn)
                for i, reply in zip(games, drawn, strict=True):
                    replies[start + i] = reply
            actor.leave(begun)
        return replies

    def guesses(self, states: Sequence[State], *, first: int = 0) -> list[str | None]:
        """One guess on each board. None where no guess could be read or the answer was cut off."""
        return [
            reply.parsed.guess if reply is not None and reply.complete else None
            for reply in self.answers(states, first=first)
        ]


def load_player(
    *,
    run: str | None = None,
    model: str | None = None,
    player: str | None = None,
    settings: Sequence[str] = (),
) -> LoadedPlayer:
    """Load the model of a run, another model, or a scripted player; give exactly one of them.

    run: a run folder, or latest. model: an option of conf/model/, such as micro. player: a scripted
    player, such as entropy. settings: what python eval.py accepts, such as "checkpoint=last",
    "sampling=default", "rules=hard", "words.test=100". Without sampling=default, models play
    greedily. Only a run or a model imports torch or MLX. Raises ValueError in one line. Lines
    about precision and threads go to standard error.
    """
    kinds = {"run": run, "model": model, "player": player}
    chosen = [f"{kind}={value}" for kind, value in kinds.items() if value is not None]
    if len(chosen) != 1:
        had = " and ".join(chosen) or "none"
        raise ConfigError(f"give one of run, model and player, not {had}")
    given = [*chosen, *settings]
    config = add_run(compose_config("eval", given), given)
    wanted = read_settings(config)
    if wanted.opener is not None and player != "entropy":
        raise ConfigError("opener is for player=entropy: give other players a board with its clue")
    tournament = build_tournament(config, wanted)
    with redirect_stdout(sys.stderr):
        contestants, _ = build_contestants(config, tournament)
    return LoadedPlayer(tournament=tournament, contestant=contestants[0])
