"""The base of kinds of rollouts, the tasks they play, and whole games as most of them play."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.memory import ran_out_of_memory
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Draws, Sampling
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.forms import FORMS, Form
from wordle_rl.rollouts.given import GivenDialogues, GivenStates
from wordle_rl.rollouts.history import History
from wordle_rl.rollouts.lesson import TeacherSettings
from wordle_rl.rollouts.play import new_games, play, record_rollouts
from wordle_rl.rollouts.policy_actor import PolicyActor, build_actor
from wordle_rl.rollouts.records import Rollout, TokenTurn
from wordle_rl.rollouts.scripted_actor import ScriptedActor, scripted_turns
from wordle_rl.runs.instantiate import MOST_GAMES, ConfigError, check_choice, check_range, option_of
from wordle_rl.words.lists import WordLists


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How much a step plays, in which form, and how it is credited. Kinds may add settings."""

    groups: int
    num_generations: int
    form: str = "conversation"
    credit: str = "game"
    discount: float = 1.0
    letter_weight: float = 0.0  # of the advantages by letter, see wordle_rl.training.letters
    # In each process; limits the memory for keys and values. A run replaces auto by a number.
    games_at_once: int | Literal["auto"] | None = None
    engine: Literal["own", "vllm"] = "own"  # who draws the tokens

    def __post_init__(self) -> None:
        check_choice("rollout.form", self.form, FORMS)
        check_choice("rollout.credit", self.credit, ("game", "turn"))
        check_choice("rollout.engine", self.engine, ("own", "vllm"))
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"rollout.discount must be 0..1, not {self.discount}")
        if self.credit == "game" and self.discount != 1.0:
            raise ValueError(
                f"rollout.discount must be 1 with rollout.credit=game, not {self.discount}"
            )
        check_range("rollout.letter_weight", self.letter_weight, 0, 1000)
        check_range("rollout.groups", self.groups, 1, 100_000)
        check_range("rollout.num_generations", self.num_generations, 1, 10_000)
        if self.groups * self.num_generations > MOST_GAMES:
            raise ConfigError(
                f"rollout.groups x rollout.num_generations must be at most {MOST_GAMES} games in a "
                f"step, not {self.groups} x {self.num_generations}"
            )
        if self.games_at_once is not None and self.games_at_once != "auto":
            check_range("rollout.games_at_once", self.games_at_once, 1, MOST_GAMES)
            if self.games_at_once < self.num_generations:
                raise ConfigError(
                    f"rollout.games_at_once must be {self.num_generations} or more, because the "
                    f"rollout.num_generations={self.num_generations} games of a group play "
                    f"together, not {self.games_at_once}"
                )


@dataclass(frozen=True, kw_only=True)
class RolloutKind(RolloutSettings, ABC):
    """A kind of rollouts: its settings, and how it plays."""

    candidates: ClassVar[bool] = False  # whether rollouts are guesses, and the game takes one
    finishes: ClassVar[bool] = True  # whether games are played to their end

    @property
    def name(self) -> str:
        """The name of the kind, as in rollout=."""
        return option_of(self)

    def answers(self, rules: Rules, earlier: int) -> int:
        """The most answers a rollout can have.

        earlier: how many guesses the games already have when the policy takes over.
        """
        if self.candidates or not self.finishes:
            return 1
        again = rules.max_retries if "retry" in (rules.invalid, rules.unparsable) else 0
        return rules.max_turns - earlier + again

    def check(self, algorithm: Algorithm) -> None:
        """Raise ValueError for an algorithm that cannot learn from such rollouts."""
        named = f"algorithm={option_of(algorithm)}"
        if self.candidates and algorithm.imitates is not None:
            raise ValueError(
                f"rollout={self.name} with {named}: the policy chooses among its own guesses, but "
                "this algorithm learns a scripted player's; use rollout=game or rollout=turn"
            )
        if self.candidates and algorithm.resample_rounds > 0:
            raise ValueError(
                f"rollout={self.name} with {named}: algorithm.resample must be 0, because a group "
                "is a turn of a game and cannot be replaced alone, not "
                f"{algorithm.resample_rounds}"
            )
        if self.letter_weight and not algorithm.takes_token_advantages:
            raise ValueError(
                f"rollout.letter_weight must be 0 with {named}, which judges whole guesses, not "
                f"{self.letter_weight:g}"
            )
        if algorithm.needs_whole_games and (self.candidates or not self.finishes):
            raise ValueError(
                f"rollout={self.name} with {named}: this algorithm imitates won games, but a "
                "rollout is a single guess; use rollout=game"
            )

    @abstractmethod
    def play(self, task: RolloutTask) -> list[Rollout]:
        """Play a task. Returns its rollouts, group by group, num_generations in each."""

    def play_in_portions(self, task: RolloutTask) -> list[Rollout]:
        """As play(), with at most games_at_once games side by side, or fewer if memory runs out.

        Draws depend on game and turn alone, so the games are the same as all at once.
        """
        size, all_of = self.num_generations, len(task.secrets)
        most = self.games_at_once // size if isinstance(self.games_at_once, int) else all_of
        return [rollout for part in task.split(max(most, 1)) for rollout in self._play_part(part)]

    def _play_part(self, task: RolloutTask) -> list[Rollout]:
        """Play a task at once, or its halves if that needs too much memory."""
        half = (len(task.secrets) + 1) // 2
        try:
            return self.play(task)
        except RuntimeError as error:
            if len(task.secrets) == 1 or not ran_out_of_memory(error):
                raise
        games = half * self.num_generations
        print(f"out of memory: {games} games at once, as with rollout.games_at_once={games}")
        return [rollout for part in task.split(half) for rollout in self._play_part(part)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a step needs besides the policy. Only a curriculum changes it in a run."""

    words: WordLists
    rules: Rules
    style: PromptStyle
    sampling: Sampling
    rewards: RewardSet
    algorithm: Algorithm
    rollout: RolloutKind  # how many games, in which form, and how they are played
    teacher: TeacherSettings | None  # plays instead of the policy if the algorithm imitates
    secrets: tuple[str, ...]  # the training secrets
    allowed_secrets: tuple[str, ...] = ()  # secrets of the groups that allowed_share counts
    allowed_share: float = 0.0  # share of the groups whose secret may be any of these
    replayed: tuple[str, ...] = ()  # secrets for the step's last groups, instead of planned ones
    history: History | None = None  # where training games begin; None: the empty board
    states: GivenStates | None = None  # from data=: training games begin there
    dialogues: GivenDialogues | None = None  # from data=: learnt instead of games
    knowledge: Knowledge | None = None  # judges letters; needed if rollout.letter_weight is above 0
    seed: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training step: what its rollouts, scores and updates share."""

    policy: Policy
    form: Form  # built once per run
    recipe: Recipe
    number: int  # counted from 0
    check: Callable[[], None] = lambda: None  # raises to abandon the step


@dataclass(frozen=True, kw_only=True)
class RolloutTask:
    """The secrets of a step that this process plays."""

    step: Step
    places: range  # numbers of the secrets within the step
    secrets: list[str]
    starts: list[State]  # for each secret the state where its games begin

    @property
    def draws(self) -> Draws:
        """The uniforms of num_generations games of each secret."""
        first = self.places.start * self.step.recipe.rollout.num_generations
        return Draws(seed=self.step.recipe.seed, step=self.step.number, first_rollout=first)

    def actor(self) -> PolicyActor:
        """The policy, for num_generations games of each secret."""
        step = self.step
        return build_actor(step.policy, step.form, step.recipe.sampling, self.draws)

    def games(self, size: int = 1) -> list[Game]:
        """Make `size` new games of each secret. Games with the same secret are adjacent."""
        recipe = self.step.recipe
        secrets = [secret for secret in self.secrets for _ in range(size)]
        starts = [state for state in self.starts for _ in range(size)]
        return new_games(secrets, recipe.words, recipe.rules, starts)

    def split(self, size: int) -> list[RolloutTask]:
        """This task as several, each with at most `size` of its secrets."""
        parts = [slice(start, start + size) for start in range(0, len(self.secrets), size)]
        return [
            replace(
                self,
                places=self.places[part],
                secrets=self.secrets[part],
                starts=self.starts[part],
            )
            for part in parts
        ]


def play_whole_games(task: RolloutTask, *, answers: int | None = None) -> list[Rollout]:
    """Play num_generations games of each secret. The games of one secret are one group.

    A teacher, if there is one, plays instead of the policy. answers: stop each game after this
    many answers. None plays to the end.
    """
    step, first = task.step, task.places.start
    size, teacher = step.recipe.rollout.num_generations, step.recipe.teacher
    games = task.games(size)

    def watch(games: Sequence[Game]) -> None:
        step.check()

    turns: list[list[TokenTurn]]
    if teacher is None:
        actor = task.actor()
        with step.policy.timers("game"):
            play(actor, games, answers=answers, watch=watch)
        turns = actor.turns
    else:
        with step.policy.timers("teacher"):
            scripted = ScriptedActor(
                player=teacher.player,
                draws=task.draws,
                mistakes=teacher.mistakes,
                slips=teacher.slips,
                careless=teacher.careless,
                reasoning=teacher.reasoning,
            )
            play(scripted, games, answers=answers, watch=watch)
            turns = [
                scripted_turns(game, step.form, slipped)
                for game, slipped in zip(games, scripted.slipped, strict=True)
            ]
    return record_rollouts(games, turns, size, first_group=first)
