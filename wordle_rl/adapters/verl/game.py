"""What a game in verl has of a composed config: its words, rules, prompt, form, rewards and limits.

wordle-rl verl writes these settings, and the agent loop of wordle_rl.adapters.verl.loop
builds a game from them on every node. Needs neither torch nor verl.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wordle_rl.adapters.verl.play import Limits
from wordle_rl.algorithms.base import Algorithm
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.data.rows import read_feedback, read_word
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Clue, Game, Rules, State
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.scoring import (
    CREDIT,
    FORFEIT,
    OVERLONG,
    RETRY,
    GameReward,
    RewardSet,
    build_reward_set,
)
from wordle_rl.rollouts.settings import RolloutSettings
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.training.experiment import Experiment
from wordle_rl.words.lists import WordLists
from wordle_rl.words.splits import Splits, WordSettings

AGENT = "wordle"  # the name of the agent loop
GROUPS = ("words", "rules", "prompt", "reward", "rollout", "algorithm")  # of the config, whole
PARTS = ("train", "val", "test")
_WRITE = "write the files with wordle-rl verl"


def choose_settings(setup: Experiment) -> dict[str, Any]:
    """The part of a run's settings that a game needs, as plain values."""
    return {
        **{group: setup.config[group] for group in GROUPS},
        "max_tokens": setup.recipe.sampling.max_tokens,
        "max_context": setup.model.max_context,
        "most_given": setup.most_given,
        "splits": setup.splits.digest,
    }


@dataclass(frozen=True, kw_only=True)
class VerlGame:
    """Begins games from rows of a Parquet file, and scores them."""

    words: WordLists
    splits: Splits
    mixed: bool  # whether held-out secrets may also be trained on (words.protocol=all)
    rules: Rules
    style: PromptStyle
    form: str
    rewards: RewardSet
    algorithm: Algorithm  # charges long answers, if it does
    limits: Limits
    most_given: int  # the most guesses that a game begins with

    def begin(self, row: Mapping[str, Any] | None) -> Game:
        """The game of a row. row: its extra_info. Raises ValueError for a row that breaks a rule.

        So a training secret among the validation secrets is refused, whoever wrote the file.
        """
        if not row or not isinstance(row.get("secret"), str):
            raise ValueError(f"a row must have extra_info.secret: {_WRITE}")
        check_row(row, self.splits, mixed=self.mixed)
        state = State(max_turns=self.rules.max_turns)
        if row.get("clues"):
            clues = read_clues(row["clues"])
            state = State(clues, len(clues), self.rules.max_turns)
        return Game(row["secret"], self.words.allowed_set, self.rules, state=state)

    def score(self, game: Game) -> GameReward:
        """The reward of a game, with what the algorithm charges for long answers."""
        reward = self.rewards.score(game)
        lengths = np.array([turn.tokens for turn in game.turns], np.int64)
        for name, shares in self.algorithm.penalties(lengths, self.limits.max_tokens).items():
            reward = reward.charged(name, shares)
        return reward

    def describe(self, game: Game, reward: GameReward) -> dict[str, float]:
        """The breakdown of a reward, with the same names for every game.

        `acc` is 1 for a win: verl takes it for the main metric, and a failed game for 0.
        """
        names = [*self.rewards.components, CREDIT, FORFEIT, RETRY, OVERLONG]
        shares = reward.components
        return {
            "acc": float(game.won),
            "guesses": float(len(game.turns)),
            **{f"reward_{name}": shares.get(name, 0.0) for name in names},
        }


def build_game(settings: Mapping[str, Any]) -> VerlGame:
    """Build what choose_settings() described. Raises ValueError in one line.

    The word lists of this machine must be the ones that the files were written with.
    """
    chosen: WordSettings = instantiate("words", settings["words"], WordSettings)
    words, splits = chosen.load()
    if splits.digest != settings["splits"]:
        raise ConfigError(
            f"words must be the lists that the files were written with (splits "
            f"{settings['splits'][:12]}), not those of this machine ({splits.digest[:12]})"
        )
    knowledge = Knowledge(words, feedback_table(words))
    rules: Rules = instantiate("rules", settings["rules"], Rules)
    rollout: RolloutSettings = instantiate("rollout", settings["rollout"], RolloutSettings)
    return VerlGame(
        words=words,
        splits=splits,
        mixed=chosen.protocol == "all",
        rules=rules,
        style=instantiate("prompt", settings["prompt"], PromptStyle, game=rules),
        form=rollout.form,
        rewards=build_reward_set(settings["reward"], knowledge, rollout.form),
        algorithm=_charging(instantiate("algorithm", settings["algorithm"], Algorithm, budget=1)),
        limits=Limits(
            max_tokens=settings["max_tokens"],
            max_context=settings["max_context"],
            answers=None if rollout.finishes else 1,
        ),
        most_given=settings["most_given"],
    )


def _charging(algorithm: Algorithm) -> Algorithm:
    """The algorithm without its KL divergence, which verl itself computes."""
    return (
        dataclasses.replace(algorithm, beta=0.0)
        if isinstance(algorithm, PolicyGradient)
        else algorithm
    )


def check_reward(score: float, reward: GameReward) -> None:
    """Raise ValueError unless a game's score is the sum over all of its turns.

    A score that was overwritten at each turn is the last turn's reward alone.
    """
    total = math.fsum(math.fsum(turn.values()) for turn in reward.turns)
    if not math.isclose(score, total, rel_tol=1e-6, abs_tol=1e-6):
        turns = ", ".join(f"{turn:g}" for turn in reward.turn_totals)
        raise ValueError(
            f"the reward of a game must be the sum over its turns, {total:g} of {turns}, not "
            f"{score:g}"
        )


def check_row(row: Mapping[str, Any], splits: Splits, *, mixed: bool) -> None:
    """Raise ValueError for a secret in the wrong part of the split. row: its extra_info."""
    secret, part = row["secret"], row.get("split")
    if part not in PARTS:
        raise ValueError(f"extra_info.split must be {', '.join(PARTS)}, not {part!r}")
    if row.get("splits") != splits.digest:
        raise ValueError(f"a row of another split of the secrets, {row.get('splits')!r}: {_WRITE}")
    if mixed:
        return
    held_out = next((name for name in ("val", "test") if secret in splits.secrets(name)), None)
    if part == "train" and held_out is not None:
        raise ValueError(f"{secret} is a {held_out} secret and must not be trained on")
    if part != "train" and held_out != part:
        raise ValueError(f"{secret} is among the {part} secrets but is none of this split")


def write_clues(clues: tuple[Clue, ...]) -> str:
    """Earlier guesses as text, such as `crane x-✓xx, slate ✓xxxx`."""
    return ", ".join(f"{clue.guess} {clue.marks}" for clue in clues)


def read_clues(text: str) -> tuple[Clue, ...]:
    """The opposite of write_clues(). Raises ValueError in one line."""
    clues = []
    for part in text.split(", "):
        guess, _, marks = part.partition(" ")
        word = read_word("guess", guess)
        clues.append(Clue(word, read_feedback(word, marks)))
    return tuple(clues)
