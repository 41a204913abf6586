"""Our games as an environment of TRL's GRPOTrainer, which lets a model guess by calling a tool.

    pip install trl==1.16.0 -c constraints.txt
    python examples/trl_environment.py --model Qwen/Qwen2.5-0.5B-Instruct --steps 100

TRL plays: it offers the method `guess` as a tool, feeds its result back and asks `get_reward` at
the end. The chat template must write tool calls, as Qwen2.5's does. TRL calls environment_factory
experimental. examples/trl_rollout.py plays with our own engine instead, which needs no tools.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from wordle_rl import (
    Game,
    build_knowledge,
    build_prompt,
    build_rewards,
    load_words,
    parse,
    split_secrets,
)
from wordle_rl.game.rules import GameStatus
from wordle_rl.prompts.styles import CALL

WORDS = load_words()
KNOWLEDGE = build_knowledge(WORDS)
STYLE = build_prompt("symbols")
REWARDS = build_rewards("phase2", KNOWLEDGE)
OVER = "The game is over."


class Wordle:
    """One game. TRL makes one object for each game that is played at once, and resets it."""

    def reset(self, *, secret: str, **_: Any) -> None:
        """Begin a game. secret: a column of the dataset."""
        self._game = Game(secret, WORDS.allowed_set)

    def guess(self, word: str) -> str:
        """Guess the secret word.

        Args:
            word: A five-letter English word.

        Returns:
            The marks of the guess, or why it was refused.
        """
        game = self._game
        if game.status is not GameStatus.PLAYING:
            return OVER
        text = f"<guess>{word}</guess>"  # the call stands for the tags of our other prompts
        parsed = parse(text)
        turn = game.play(parsed.guess, text=text, reason=parsed.reason)
        return OVER if game.status is not GameStatus.PLAYING else STYLE.feedback(turn, game.state)

    def get_reward(self) -> float:
        """The reward of the game. One that the model left unfinished is lost."""
        if self._game.status is GameStatus.PLAYING:
            self._game.forfeit()
        return REWARDS.reward(self._game).total


def build_dataset() -> Any:
    """A row for each training secret: the conversation up to the first guess, and the secret."""
    from datasets import Dataset

    system = {"role": "system", "content": STYLE.rules + CALL}
    user = {"role": "user", "content": STYLE.opening(Game("crane", ()).state)}
    secrets = split_secrets(WORDS).secrets("train")
    return Dataset.from_list([{"prompt": [system, user], "secret": word} for word in secrets])


def build_trainer(model: str, steps: int, folder: str, **settings: Any) -> Any:
    """TRL's trainer. settings: more of GRPOConfig's."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl import GRPOConfig, GRPOTrainer

    defaults = {
        "max_steps": steps, "num_generations": 8, "per_device_train_batch_size": 8,
        "max_completion_length": 512, "max_tool_calling_iterations": 6, "learning_rate": 1e-6,
        "beta": 0.0, "logging_steps": 1, "report_to": [],
    }  # fmt: skip
    return GRPOTrainer(
        model=model, args=GRPOConfig(output_dir=folder, **{**defaults, **settings}),
        train_dataset=build_dataset(), environment_factory=Wordle,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", default="outputs/trl", help="a folder for TRL")
    args = parser.parse_args()
    build_trainer(args.model, args.steps, args.output).train()
