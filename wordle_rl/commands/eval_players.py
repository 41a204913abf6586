"""The players of eval.py and of programs: a run's model, another model, or a scripted player.

They are loaded with the settings of conf/eval.yaml and play the same secrets by the same rules.
"""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, open_dict

from wordle_rl.backends import load_backend
from wordle_rl.commands.build import (
    PLAYERS,
    build_backend_settings,
    build_history,
    check_keys,
    check_opener,
    choose_player,
    resolve,
)
from wordle_rl.commands.resume import (
    adopt,
    check_match,
    describe_untaught_prompt,
    list_keys,
    read_saved_config,
)
from wordle_rl.evaluation.regret import Regret, best_player
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.players import Decoder, Player, RandomConsistent, RandomWord
from wordle_rl.game.rules import Game, PlayedTurn, Rules, State
from wordle_rl.policy.models import MAIN, UNTRAINED
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.sampling import Draws, Sampling, Stream
from wordle_rl.policy.settings import ModelSettings
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet, build_reward_set
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form, check_room
from wordle_rl.rollouts.history import fixed_states
from wordle_rl.rollouts.play import Actor, ModelPlayer, check_grammar, new_games, open_with, play
from wordle_rl.rollouts.teacher import ScriptedPlayer, draw_shots
from wordle_rl.runs.checkpoints import CheckpointStore, step_of
from wordle_rl.runs.config import compose_config, read_config
from wordle_rl.runs.folder import RunFolder, find_run
from wordle_rl.runs.instantiate import MOST, ConfigError, Count, Seed, Within, instantiate
from wordle_rl.runs.paths import ROOT, shorten
from wordle_rl.runs.progress import announce
from wordle_rl.training.lineage import describe_lineage, stages_of
from wordle_rl.training.progress import GameCount
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits, WordSettings

_GAMES_AT_ONCE = 512
# With the player that knows no clues.
_PLAYERS = {**PLAYERS, "random": lambda knowledge: RandomWord(knowledge.words)}
_MOST_ALLOWED = 15_000  # up to so many allowed words, entropy over all of them is cheap enough
# A model's file may choose these.
_FOR_TRAINING = {"optim", "rollout", "num_generations", "trainer"}
_FROM_RUN = ("model", "prompt", "reward", "words", "rules")  # taken from a run unless overridden
_PARTS = {"model", "backend", "prompt", "reward", "words", "rules", "sampling", "history"}


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What to evaluate and how, see conf/eval.yaml."""

    run: str | None = None
    checkpoint: str | Annotated[int, Within(0, MOST)] = "best"
    player: str | None = None
    opener: str | None = None
    form: Literal["conversation", "fresh", "tool"] = "conversation"
    allow_mismatch: bool = False
    compare: bool = True
    shots: Annotated[int, Within(0, 100)] = 0
    samples: Annotated[int, Within(1, 10_000)] = 1
    limit: Count | None = None
    show: Annotated[int, Within(0, MOST)] = 4
    record: str | None = None
    seed: Seed = 0
    output_dir: str = "outputs"
    json: bool = False

    def __post_init__(self) -> None:
        for wrong, message in (
            (self.player and self.run, "player and run exclude each other: give one of them"),
            (self.checkpoint != "best" and not self.run, "checkpoint needs run=<its run>"),
            (self.shots and self.player, "player and shots exclude each other: only a model reads"),
            (self.shots and self.form == "tool", "shots needs form=conversation or fresh"),
        ):
            if wrong:
                raise ConfigError(message)


def read_settings(cfg: DictConfig, overrides: Sequence[str]) -> tuple[dict[str, Any], EvalSettings]:
    """The resolved config, with a run's settings unless the command line overrides them.

    Returns it with the settings of this command alone. Raises ValueError in one line.
    """
    config = _add_run(cfg, list_keys(overrides))
    names = set(EvalSettings.__dataclass_fields__)
    check_keys(config, _PARTS | names)
    return config, instantiate("", {k: v for k, v in config.items() if k in names}, EvalSettings)


def _add_run(cfg: DictConfig, keys: set[str]) -> dict[str, Any]:
    if not _FOR_TRAINING & {key.partition(".")[0] for key in keys}:
        with open_dict(cfg):
            for part in _FOR_TRAINING:
                cfg.pop(part, None)
    models = [key for key in sorted(keys) if re.match(r"(model|prompt|sampling)\b", key)]
    if cfg.player is not None and models:
        raise ConfigError(f"player and {models[0]} exclude each other: give one of them")
    if cfg.run is None:
        return resolve(cfg)
    folder = find_run(str(cfg.run), outputs=ROOT / str(cfg.output_dir))
    run_config = read_saved_config(folder)
    if clash := [key for key in sorted(keys) if re.match(r"model$|model\.(path|lora|shape)", key)]:
        raise ConfigError(f"{clash[0]} and run exclude each other: a run has its own model")
    # Checkpoints need their run's backend, but this command chooses how that computes.
    backend = ["backend"] if run_config.backend._target_ != cfg.backend._target_ else []
    for node in (*_FROM_RUN, *backend):
        adopt(cfg, run_config, node, keys)
    config = resolve(cfg)
    if "form" not in keys:
        config["form"] = run_config.rollout.form
    if "words" not in keys and "words.split" not in keys:
        config["words"]["split"] = "all" if config["words"]["protocol"] == "all" else "test"
    config["run"] = str(folder.path)
    return config


def choose_model(config: dict[str, Any], settings: EvalSettings) -> ModelSettings:
    """The model's settings. With a run, their path is in the chosen checkpoint, verified."""
    name, model = str(settings.checkpoint), config["model"]
    if settings.run is not None and name != "start":
        store = CheckpointStore(RunFolder(Path(settings.run)).checkpoints, read_only=True)
        steps = {str(step_of(path)): path for path in sorted(store.folder.glob("step_*"))}
        by_name = {**steps, "best": store.best(), "last": store.latest()}
        folder = by_name.get(name, ROOT / name)
        if folder is None or not folder.is_dir():
            raise ConfigError(
                f"checkpoint must be best, last, start, a step ({', '.join(steps)}) or a folder, "
                f"and {store.folder} has no {name}"
            )
        path = str(store.verify(folder) / "model")
        print(f"{shorten(store.folder.parent)} plays with its weights of {folder.name}")
        if name == "best" and step_of(folder) == 0:
            print(
                "note: no validation was better than the start's, so checkpoint=best is the start; "
                "checkpoint=last is what the run learnt"
            )
        model = {**model, "path": path, "revision": MAIN, "shape": {}, "lora": None}
    return instantiate("model", model, ModelSettings, any_base=settings.allow_mismatch)


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """The secrets and rules that every player plays."""

    settings: EvalSettings
    knowledge: Knowledge
    regret: Regret
    rules: Rules
    style: PromptStyle  # how a model is asked; a scripted player reads the board itself
    sampling: Sampling  # and how it draws its answers
    splits: Splits  # training, validation and test secrets
    secrets: tuple[str, ...]
    starts: tuple[State, ...]  # where the game on each secret begins
    split: str

    @property
    def words(self) -> WordLists:
        return self.knowledge.words

    def draws(self, first: int) -> Draws:
        """The random numbers of games. first: number of the first one."""
        return Draws(seed=self.settings.seed, stream=Stream.EVALUATION, first_rollout=first)


@dataclass(frozen=True, kw_only=True)
class LoadedPlayer(Tournament):
    """A player, with the words, rules, prompt and rewards that it plays by."""

    name: str  # in reports
    seat: Callable[[int], Actor]  # makes the player of a batch, from its first game's number
    rewards: RewardSet  # what its games earn, such as player.rewards.reward(game).total
    games_at_once: int = _GAMES_AT_ONCE
    lineage: str | None = None  # how a model was made, in one line
    samples: int | None = None  # games per secret, None for as many as the settings say

    def play(
        self,
        secrets: Sequence[str],
        *,
        starts: Sequence[State] | None = None,
        first: int = 0,
        answers: int | None = None,
        count: GameCount | None = None,
    ) -> list[Game]:
        """Play a game on each secret, many side by side. Returns them in this order.

        starts: the board that each game begins with, None for empty boards. first: number of the
        first game. Games with other numbers draw other random numbers, so first=len(secrets) plays
        the same secrets a second time. answers: of each game, None for all. count: counts them
        meanwhile.
        """
        for secret in secrets:
            if self.rules.invalid != "accept" and secret not in self.words.allowed_set:
                raise ValueError(f"secrets must be allowed words in lower case, not {secret!r}")
        games = new_games(secrets, self.words, self.rules, starts)
        count = count or GameCount(len(games))
        for start in range(0, len(games), self.games_at_once):
            batch, player = games[start : start + self.games_at_once], self.seat(first + start)
            play(player, batch, answers=answers, watch=count.look)
            count.next_batch()
        return games

    def answers(self, states: Sequence[State], *, first: int = 0) -> list[PlayedTurn | None]:
        """One answer on each board, as the turn of a game on some secret.

        None where a board leaves no room for an answer in the model's context. first: as in play.
        """
        secrets = [self.words.answers[0]] * len(states)
        games = self.play(secrets, starts=states, first=first, answers=1)
        return [game.turns[0] if game.turns else None for game in games]

    def guesses(self, states: Sequence[State], *, first: int = 0) -> list[str | None]:
        """One guess on each board. None where no guess could be read or the answer was cut off."""
        return [turn and turn.guess for turn in self.answers(states, first=first)]


def load_player(
    *,
    run: str | None = None,
    model: str | None = None,
    player: str | None = None,
    settings: Sequence[str] = (),
) -> LoadedPlayer:
    """Load the model of a run, another model, or a scripted player; give exactly one of them.

    run: a run folder, or latest. model: an option of conf/model/, such as micro. player: a scripted
    player, such as entropy. settings: what python eval.py accepts, such as "checkpoint=last" or
    "sampling.temperature=1"; without a temperature, models play greedily. Raises ValueError in one
    line. Lines about precision and threads go to standard error.
    """
    config, options = _compose_player(settings, run=run, model=model, player=player)
    tournament = build_tournament(config, replace(options, compare=False))
    with redirect_stdout(sys.stderr):
        return build_players(config, tournament)[0][0]


def load_word_lists(
    *,
    run: str | None = None,
    model: str | None = None,
    player: str | None = None,
    settings: Sequence[str] = (),
) -> WordLists:
    """The word lists of what load_player would load. Reads only its settings, so takes a second."""
    config, _ = _compose_player(settings, run=run, model=model, player=player)
    word_settings: WordSettings = instantiate("words", config["words"], WordSettings)
    return word_settings.load()[0]


def _compose_player(
    settings: Sequence[str], **kinds: str | None
) -> tuple[dict[str, Any], EvalSettings]:
    """The config of a player, and the settings of eval.py. Raises ConfigError."""
    choices = [f"{kind}={value}" for kind, value in kinds.items() if value is not None]
    if len(choices) != 1:
        raise ConfigError(f"give one of run, model and player, not {' and '.join(choices)}")
    overrides = [*choices, *settings]
    return read_settings(compose_config("eval", overrides), overrides)


def build_tournament(config: dict[str, Any], settings: EvalSettings) -> Tournament:
    """What every player plays. Raises ConfigError."""
    if settings.player is not None:
        choose_player("player", settings.player, _PLAYERS)
    word_settings: WordSettings = instantiate("words", config["words"], WordSettings)
    words, splits = word_settings.load()
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", config["rules"], Rules)
    # A scripted player does not sample, but wrong settings are refused all the same.
    sampling: Sampling = instantiate("sampling", config["sampling"], Sampling)
    history = build_history(config["history"], knowledge, rules)
    if settings.samples > 1 and settings.player is None and sampling.temperature == 0.0:
        raise ConfigError(
            "sampling.temperature must be above 0 where samples is above 1, because greedy games "
            "on one secret are all alike, not 0: add sampling.temperature=1"
        )
    secrets = word_settings.eval_secrets(words, splits)[: settings.limit]
    if settings.opener is not None:
        opener = check_opener("opener", settings.opener, words)
        settings = replace(settings, opener=opener)
    return Tournament(
        settings=settings,
        knowledge=knowledge,
        regret=Regret(knowledge, rules.max_turns),
        rules=rules,
        style=instantiate("prompt", config["prompt"], PromptStyle, game=rules),
        sampling=sampling,
        splits=splits,
        secrets=secrets,
        starts=fixed_states(history, secrets, seed=settings.seed, max_turns=rules.max_turns),
        split=word_settings.split,
    )


# -- scripted players -----------------------------------------------------------------------------


def build_solvers(knowledge: Knowledge, decoder: Decoder | None = None) -> list[Player]:
    """The scripted players in every table, as lower and upper bounds.

    decoder: of the model in this table, if it has one; it comes first. entropy_allowed is left out
    where it knows the same words as entropy, and where it is costly.
    """
    words = knowledge.words
    unlike = len(words.answers) < len(words.allowed) <= _MOST_ALLOWED
    solvers = [
        best_player(knowledge),
        *([PLAYERS["entropy_allowed"](knowledge)] if unlike else []),
        RandomConsistent(knowledge, "answers"),
        RandomConsistent(knowledge, "allowed"),
        RandomWord(words),
    ]
    if decoder is None:
        return solvers
    return [decoder, *(solver for solver in solvers if solver.name != decoder.name)]


def begin_games(tournament: Tournament, seat: Callable[[int], Actor]) -> Callable[[int], Actor]:
    """Seats whose players make the first guess of every game that opener= names."""
    word = tournament.settings.opener
    if word is None:
        return seat
    return lambda first: open_with(word, tournament.style.write(word), seat(first))


def enter(player: Player, tournament: Tournament, rewards: RewardSet) -> LoadedPlayer:
    """Enter a scripted player. It writes its guesses as in a conversation, whatever form=."""

    def seat(first: int) -> Actor:
        return ScriptedPlayer(player=player, draws=tournament.draws(first))

    return LoadedPlayer(
        **vars(tournament), name=player.name, seat=begin_games(tournament, seat), rewards=rewards
    )


# -- models ---------------------------------------------------------------------------------------


def build_players(
    config: dict[str, Any], tournament: Tournament
) -> tuple[list[LoadedPlayer], dict[str, Any] | None]:
    """Build the config's player, and record how a model computes: its precision and threads.

    Beside a model that plays several games per secret, its greedy games are the second player.
    """
    settings = tournament.settings
    form = settings.form if settings.player is None else "conversation"
    rewards = build_reward_set(config["reward"], tournament.knowledge, form)
    if settings.player is not None:
        solver = choose_player("player", settings.player, _PLAYERS)(tournament.knowledge)
        return [enter(solver, tournament, rewards)], None
    model = choose_model(config, settings)
    policy = _load_policy(config, tournament, model)
    sampling = tournament.sampling
    talk = _build_talk(form, Chat(policy.tokenizer), tournament)
    check_room(
        talk,
        sampling,
        model.max_context,
        turns=tournament.rules.max_turns,
        guesses=max((len(state.clues) for state in tournament.starts), default=0),
    )
    check_grammar(talk, sampling, tournament.words.allowed_set)

    def seat(first: int, sampling: Sampling = sampling) -> Actor:
        return ModelPlayer(
            engine=policy.engine(),
            form=talk,
            sampling=sampling,
            draws=tournament.draws(first),
            knowledge=tournament.knowledge,
        )

    beams = sampling.beams if sampling.temperature == 0.0 else 1  # rows of one game
    player = LoadedPlayer(
        **vars(tournament),
        name=_name_player(model, settings, sampling),
        seat=begin_games(tournament, seat),
        rewards=rewards,
        lineage=_describe_model(model, tournament),
        games_at_once=max(model.games_at_once // beams, 1),
    )

    def vary(name: str, sampling: Sampling, **fields: Any) -> LoadedPlayer:
        seats = begin_games(tournament, partial(seat, sampling=sampling))
        return replace(player, name=name, seat=seats, **fields)

    players = [player]
    if settings.samples > 1:
        greedy = replace(sampling, temperature=0.0)
        players.append(vary(f"greedy {player.name}", greedy, samples=1))
    if settings.compare and (run_sampling := learnt_sampling(settings, sampling)) is not None:
        with suppress(ValueError):  # of these settings, under which it has no place here
            check_grammar(talk, run_sampling, tournament.words.allowed_set)
            players.append(vary(_name_player(model, settings, run_sampling), run_sampling))
    return players, policy.computing.record()


def _build_talk(form: str, chat: Chat, tournament: Tournament) -> Form:
    settings, secrets = tournament.settings, tournament.splits.train
    examples = draw_shots(
        settings.shots, secrets, tournament.knowledge, tournament.rules, settings.seed
    )
    return build_form(form, chat, tournament.style, examples)


def _describe_model(model: ModelSettings, tournament: Tournament) -> str:
    """The model's lineage, and whether its training could have had the secrets of these games."""
    stages = stages_of(model.location)
    lineage = describe_lineage(
        stages, tournament.words, tournament.splits, untrained=model.path == UNTRAINED
    )
    if stages and tournament.split not in ("test", "val"):
        split = f"words.split={tournament.split}"
        lineage += f" But training games may have had these secrets, {split}."
    return lineage


def learnt_sampling(settings: EvalSettings, sampling: Sampling) -> Sampling | None:
    """How a run's model drew in training, if under a grammar that these games do not have."""
    if settings.run is None or sampling.grammar is not None:
        return None
    node = read_config(Path(settings.run)).get("sampling") or {}
    changes = {key: node[key] for key in ("grammar", "grammar_from", "repeats") if key in node}
    return replace(sampling, **changes) if changes.get("grammar") else None


def _load_policy(config: dict[str, Any], tournament: Tournament, model: ModelSettings) -> Any:
    """Load a model that may play here. Raises ConfigError, and prints how it computes."""
    settings, style = tournament.settings, tournament.style
    if not settings.allow_mismatch:
        check_match(model.location, style, ("form", settings.form), tournament.words)
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
    return policy


def _name_player(model: ModelSettings, settings: EvalSettings, sampling: Sampling) -> str:
    """The run with its checkpoint unless that is the best, or the model; and what helps it."""
    if settings.run is not None:
        suffix = "" if settings.checkpoint == "best" else f" {Path(str(settings.checkpoint)).name}"
        name = f"{Path(settings.run).name}{suffix}"
    else:
        folder = Path(model.path).absolute()  # model/ in a run's folder, or one with its own name
        name = folder.parent.name if folder.name == "model" else folder.name
        name = name if folder.is_dir() else model.name
    helps = [f"{settings.shots} shots"] if settings.shots else []
    if sampling.grammar is not None:
        helps.append("clue grammar" if sampling.grammar == "clues" else "grammar")
        helps[-1] += f" from {sampling.grammar_from}" if sampling.grammar_from else ""
        helps[-1] += "" if sampling.repeats else " without repeats"
    if sampling.beams > 1 and sampling.temperature == 0.0:
        helps.append(f"{sampling.beams} beams")
    return ", ".join([name, *helps])
