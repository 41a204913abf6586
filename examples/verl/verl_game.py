"""The games of a run with verl, and what they earn. Needs neither torch nor verl.

write_files.py writes the settings of choose_settings(); each node builds a VerlGame from them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.data.rows import read_state
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, Rules
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards import scoring
from wordle_rl.rewards.scoring import GameReward, build_reward_set
from wordle_rl.rollouts.settings import RolloutSettings
from wordle_rl.runs.instantiate import ConfigError, instantiate
from wordle_rl.training.experiment import Experiment
from wordle_rl.words.splits import WordSettings

GROUPS = ("words", "rules", "prompt", "reward", "rollout", "algorithm")  # of the config, whole


def choose_settings(setup: Experiment) -> dict[str, Any]:
    """The part of a run's settings that a game needs, as plain values."""
    return {
        **{group: setup.config[group] for group in GROUPS},
        "max_tokens": setup.recipe.sampling.max_tokens,  # of an answer
        "max_context": setup.model.max_context,  # of a whole game, prompts included
        "most_earlier_guesses": setup.most_earlier_guesses,  # that a game begins with
        "splits": setup.splits.digest,
    }


class VerlGame:
    """Begins games from rows of a Parquet file, and scores them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """settings: what choose_settings() returned. Raises ValueError in one line.

        The word lists of this machine must be the ones that the files were written with.
        """
        word_settings: WordSettings = instantiate("words", settings["words"], WordSettings)
        self.words, self.splits = word_settings.load()
        if self.splits.digest != settings["splits"]:
            raise ConfigError(
                f"words must be the lists that the files were written with (splits "
                f"{settings['splits'][:12]}), not those of this machine ({self.splits.digest[:12]})"
            )
        rollout: RolloutSettings = instantiate("rollout", settings["rollout"], RolloutSettings)
        knowledge = Knowledge(self.words, feedback_table(self.words))
        self.mixed = word_settings.protocol == "all"  # held-out secrets may be trained on, too
        self.rules: Rules = instantiate("rules", settings["rules"], Rules)
        self.style = instantiate("prompt", settings["prompt"], PromptStyle, game=self.rules)
        self.form = rollout.form
        self.rewards = build_reward_set(settings["reward"], knowledge, rollout.form)
        self.algorithm = instantiate("algorithm", settings["algorithm"], Algorithm, budget=1)
        numbers = ("max_tokens", "max_context", "most_earlier_guesses")
        self.max_tokens, self.max_context, self.most_earlier_guesses = (
            settings[name] for name in numbers
        )
        self.answers = None if rollout.finishes else 1  # leave the game after so many

    def begin(self, row: Mapping[str, Any] | None) -> Game:
        """The game of a row. row: its extra_info. Raises ValueError for a row that breaks a rule.

        So a training secret among the validation secrets is refused, whoever wrote the file.
        """
        row = row or {}
        if row.get("splits") != self.splits.digest:
            raise ValueError(
                f"a row of another split of the secrets, {row.get('splits')!r}: write the files "
                "with examples/verl/write_files.py"
            )
        start, part = read_state(row, self.words, self.rules), row.get("split")
        held_out = (name for name in ("val", "test") if start.secret in self.splits.secrets(name))
        if not self.mixed and part != (home := next(held_out, "train")):
            raise ValueError(f"{start.secret} is a {home} secret and must not be a {part} secret")
        state = start.state(self.rules.max_turns)
        return Game(start.secret, self.words.allowed_set, self.rules, state=state)

    def reward(self, game: Game) -> GameReward:
        """The reward of a game, with what the algorithm charges for long answers."""
        reward = self.rewards.reward(game)
        lengths = np.array([turn.tokens for turn in game.turns], np.int64)
        # verl itself computes the divergence from the reference.
        charges = self.algorithm.penalties(lengths, self.max_tokens, np.zeros(len(lengths)))
        for name, shares in charges.items():
            reward = reward.charged(name, shares)
        return reward

    def describe(self, game: Game, reward: GameReward) -> dict[str, float]:
        """The breakdown of a reward, with the same names for every game.

        `acc` is 1 for a win: verl takes it for the main metric, and a failed game for 0.
        """
        laws = (scoring.CREDIT, scoring.FORFEIT, scoring.RETRY, scoring.OVERLONG)
        shares = dict.fromkeys([*self.rewards.components, *laws], 0.0) | reward.components
        shares.pop(scoring.KL, None)  # verl's own
        parts = {f"reward_{name}": share for name, share in shares.items()}
        return {"acc": float(game.won), "guesses": float(len(game.turns)), **parts}
