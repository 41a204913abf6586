"""Wordle as an environment of verifiers 0.4, for vf-eval, prime-rl and other trainers that use it.

`PYTHONPATH=examples vf-eval verifiers_environment` finds WordleTaskset and WordleEnv here. A model
plays the same games as in eval.py with form=conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
from verifiers.v1.harnesses.null import NullHarnessConfig  # pyright: ignore[reportMissingImports]
from verifiers.v1.runtimes import SubprocessConfig  # pyright: ignore[reportMissingImports]

from wordle_rl.adapters.api import build_knowledge, build_prompt, build_rewards
from wordle_rl.game.rules import Game, GameStatus, Rules
from wordle_rl.words.lists import load_words
from wordle_rl.words.splits import split_secrets


class WordleConfig(vf.TasksetConfig):
    """Settings of the games, as --env.taskset.<name> of vf-eval."""

    part: Literal["train", "val", "test", "all"] = "train"
    """Secrets of which part of the split by hash, the same on every machine."""
    prompt: str = "symbols"
    """How clues are written: a file of conf/prompt/."""
    reward: str = "phase2"
    """What a game earns: a file of conf/reward/."""
    settings: tuple[str, ...] = ()
    """Changes of these two as on train.py's command line: reward.components.win.weight=5."""


class WordleData(vf.TaskData):
    """One game."""

    secret: str
    splits: str
    """Digest of the split that the secret's part belongs to."""


class WordleTask(vf.Task[WordleData]):
    """A game is scored while it is played, so a task adds nothing."""


class WordleTaskset(vf.Taskset[WordleTask, WordleConfig]):
    """One task for each secret of a part, in the order of the split."""

    @cached_property
    def style(self):
        return build_prompt(self.config.prompt, Rules(), *self._settings("prompt."))

    @cached_property
    def rewards(self):
        return build_rewards(self.config.reward, self.knowledge, *self._settings("reward."))

    @cached_property
    def knowledge(self):
        return build_knowledge()

    def _settings(self, group: str) -> list[str]:
        return [setting for setting in self.config.settings if setting.startswith(group)]

    def load(self) -> Iterator[WordleTask]:
        splits = split_secrets(load_words())
        for secret in splits.secrets(self.config.part):
            data = WordleData(
                name=secret, secret=secret, splits=splits.digest, system_prompt=self.style.system,
                prompt=self.style.opening(Game(secret, ()).state),
            )  # fmt: skip
            yield WordleTask(data, self.config.task)


class WordleEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=SubprocessConfig()
    )
    """The model: a plain chat, without tools."""


class WordleEnv(vf.Env[WordleEnvConfig]):
    """Plays one game to its end and records its reward.

    The trace gets one reward for each component, which add up to the reward of the game.
    trace.info["turn_rewards"] has the reward of each turn, from which wordle_rl.token_advantages
    makes the advantage of each token.
    """

    async def run(self, task, agents) -> None:
        lab: WordleTaskset = self.taskset
        game = Game(task.data.secret, lab.knowledge.words.allowed_set)
        async with agents.player.interaction(task) as talk:
            segment = await talk.turn()
            while not segment.terminated:
                text = segment.messages[-1].content or ""
                parsed = lab.style.parse(text)
                if talk.trace.is_truncated:
                    parsed = parsed.truncated()
                turn = game.play(
                    parsed.guess, text=text, thought=parsed.thought, reason=parsed.reason
                )
                if game.status is not GameStatus.PLAYING:
                    break
                segment = await talk.turn(lab.style.feedback(turn, game.state))
        if talk.trace.errors:
            return  # of the server: not a game that the model lost
        if game.status is GameStatus.PLAYING:
            game.forfeit()  # a limit of verifiers ended the game
        reward = lab.rewards.reward(game)
        for name, value in reward.components.items():
            talk.trace.record_reward(name, value)
        guesses = [turn.guess for turn in game.turns]
        talk.trace.record_metrics({"won": float(game.won), "guesses": float(len(guesses))})
        talk.trace.info["turn_rewards"] = list(reward.turn_totals)
        talk.trace.info["guesses"] = guesses


__all__ = ["WordleEnv", "WordleTaskset"]
