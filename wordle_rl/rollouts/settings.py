"""What a step of training is made of: settings of its rollouts, the recipe, the step itself."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Rules
from wordle_rl.policy.policy import Policy
from wordle_rl.policy.sampling import Sampling
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.forms import Form, FormName
from wordle_rl.rollouts.given import GivenDialogue, GivenState
from wordle_rl.rollouts.history import History
from wordle_rl.rollouts.play import Portions
from wordle_rl.rollouts.teacher import TeacherSettings
from wordle_rl.runs.instantiate import MOST_GAMES, ConfigError, Count, Share, Within, option_of
from wordle_rl.words.lists import WordLists


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """How much a step plays, of which kind and in which form, and how it is credited."""

    groups: Annotated[int, Within(1, 100_000)]
    num_generations: Annotated[int, Within(1, 10_000)]
    kind: Literal["game", "turn", "best_of"] = "game"  # see wordle_rl.rollouts.kinds
    form: FormName = "conversation"
    credit: Literal["game", "turn"] = "game"
    discount: Share = 1.0
    # Which guess a game of best_of continues with, see wordle_rl.rollouts.kinds.
    advance: Literal["best", "first", "likeliest"] = "best"
    # Of the advantages by letter, see wordle_rl.training.advantages.
    letter_weight: Annotated[float, Within(0, 1000)] = 0.0
    word_letter_weight: Annotated[float, Within(0, 1000)] = 0.0
    letter_from: Count | None = None
    # In each process; limits the memory for keys and values.
    games_at_once: Annotated[int, Within(1, MOST_GAMES)] | None = None
    engine: Literal["own", "vllm"] = "own"  # who draws the tokens

    def __post_init__(self) -> None:
        if self.credit == "game" and self.discount != 1.0:
            raise ConfigError(
                f"rollout.discount must be 1 with rollout.credit=game, not {self.discount}"
            )
        if self.advance != "best" and self.kind != "best_of":
            raise ConfigError(
                f"rollout.advance must be best with rollout={self.kind}, not {self.advance}"
            )
        if self.letter_from is not None and not self.letter_weight:
            raise ConfigError("rollout.letter_from must be null while rollout.letter_weight is 0")
        if self.groups * self.num_generations > MOST_GAMES:
            raise ConfigError(
                f"rollout.groups x rollout.num_generations must be at most {MOST_GAMES} games in a "
                f"step, not {self.groups} x {self.num_generations}"
            )
        if (self.games_at_once or self.num_generations) < self.num_generations:
            raise ConfigError(
                f"rollout.games_at_once must be {self.num_generations} or more, because the games "
                f"of a group play together, not {self.games_at_once}"
            )

    @property
    def finishes(self) -> bool:
        """Whether games are played to their end."""
        return self.kind != "turn"

    def answers(self, rules: Rules, earlier: int) -> int:
        """The most answers a rollout can have.

        earlier: how many guesses the games already have when the policy takes over.
        """
        return rules.most_answers - earlier if self.kind == "game" else 1

    def check(self, algorithm: Algorithm) -> None:
        """Raise ValueError for an algorithm that cannot learn from such rollouts."""
        judges_letters = self.letter_weight > 0 or self.word_letter_weight > 0
        why = ""
        if self.kind == "best_of" and algorithm.imitates is not None:
            why = "the policy chooses among its own guesses; use rollout=game or rollout=turn"
        elif self.kind == "best_of" and algorithm.resample > 0:
            why = "algorithm.resample must be 0, because a turn of a game cannot be replaced alone"
        elif self.kind != "game" and algorithm.needs.whole_games:
            why = "this algorithm imitates won games, but a rollout is a guess; use rollout=game"
        elif judges_letters and algorithm.needs.whole_answers:
            name = "letter_weight" if self.letter_weight else "word_letter_weight"
            why = f"rollout.{name} must be 0 for an algorithm that judges whole guesses"
        if why:
            raise ConfigError(f"rollout={self.kind} with algorithm={option_of(algorithm)}: {why}")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a step needs besides the policy. Only a curriculum changes it in a run."""

    words: WordLists
    rules: Rules
    style: PromptStyle
    sampling: Sampling
    rewards: RewardSet
    algorithm: Algorithm
    rollout: RolloutSettings
    teacher: TeacherSettings | None  # plays instead of the policy if the algorithm imitates
    secrets: tuple[str, ...]  # the training secrets
    allowed_secrets: tuple[str, ...] = ()  # secrets of the groups that allowed_share counts
    allowed_share: float = 0.0  # share of the groups whose secret may be any of these
    replayed: tuple[str, ...] = ()  # secrets for the step's last groups, instead of planned ones
    history: History | None = None  # where training games begin; None: the empty board
    states: tuple[GivenState, ...] | None = None  # from data=: training games begin there
    dialogues: tuple[GivenDialogue, ...] | None = None  # from data=: learnt instead of games
    agreement: bool = False  # whether to compare the gradients of two halves of each update
    knowledge: Knowledge | None = None  # needed by a grammar and by credit by letter
    seed: int

    @property
    def scoring_temperature(self) -> float:
        """Of the trainer's log-probabilities: as for draws, or 1 for answers that nobody drew."""
        return self.sampling.temperature if self.teacher is None else 1.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training step: what its rollouts, scores and updates share."""

    policy: Policy
    form: Form  # built once per run
    recipe: Recipe
    number: int  # counted from 0
    check: Callable[[], None] = lambda: None  # raises to abandon the step
    portions: Portions = field(default_factory=Portions)  # of games; one object for a whole run
