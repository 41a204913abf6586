"""Whole games in TRL's GRPOTrainer, at the settings that make it fastest on CPU.

OwnGeneration plays by the trainer's own method, as its tool loop does, but parses no tool calls and
ends answers early, which favours TRL. Otherwise `rollout_func` plays with the fastest loop over
generate of benchmarks/rollout.py, on a copy in the faster precision, made once per step. Both use
beta 0, one update per batch, no checkpointing, no logs and no saves.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks._generate import FreshPlayer, GenerateSettings, generate_player
from benchmarks._scene import GROUP, Scene, copy_to_play, copy_weights
from wordle_rl.game.rules import Game
from wordle_rl.rollouts.play import new_games, play
from wordle_rl.rollouts.talk import Talk


@dataclass(frozen=True, kw_only=True)
class TrlSettings:
    """The settings of TRL that the benchmark chooses by timing them."""

    micro_batch: int  # games per forward and backward pass
    attention: str = "sdpa"
    # autocast casts float32 weights in each pass. bfloat16 keeps weights, gradients and optimiser
    # in bfloat16, which loses small updates.
    weights: Literal["float32", "autocast", "bfloat16"] = "autocast"

    def __str__(self) -> str:
        return f"{self.weights}, {self.attention}, {self.micro_batch} games at once"


@dataclass(frozen=True, kw_only=True)
class Played:
    """Finished games, and the conversation of each."""

    games: list[Game]
    talks: list[Talk]

    def for_trl(self) -> dict[str, Any]:
        """The return value of a rollout_func. env_mask is 0 at tokens of the environment."""
        begins = [talk.answers[0].start for talk in self.talks]
        pairs = list(zip(self.talks, begins, strict=True))
        return {
            "prompt_ids": [talk.ids[:begin] for talk, begin in pairs],
            "completion_ids": [talk.ids[begin:] for talk, begin in pairs],
            "logprobs": None,
            "env_mask": [[int(drawn) for drawn in talk.trained[begin:]] for talk, begin in pairs],
            "game": self.games,
        }


class OwnGeneration(FreshPlayer):
    """Draws answers with the trainer's own method, which its tool loop calls too."""

    trainer: Any

    def draw(self, rows: list[list[int]]) -> list[list[int]]:
        return self.trainer._generate_single_turn(rows, None, {}, num_generations=1)[0]


class Recorder(TrainerCallback):
    """Times each step, calls `between` after it, and keeps gradients if asked to."""

    def __init__(self, between: Callable[[int], object], *, gradients: bool) -> None:
        self._between = between
        self._gradients = gradients
        self._begin = 0.0
        self.seconds: list[float] = []
        self.gradient: dict[str, torch.Tensor] = {}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begin = time.perf_counter()

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        if self._gradients:
            parameters = model.named_parameters()
            self.gradient = {n: p.grad.clone() for n, p in parameters if p.grad is not None}

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._begin)
        self._between(len(self.seconds) - 1)


class TrlGames:
    """A GRPOTrainer that plays a scene's games in one of the two ways, or trains on given ones.

    loop: how rollout_func calls generate, None for TRL's own generation. between: called after each
    step, not timed.
    """

    def __init__(
        self,
        scene: Scene,
        settings: TrlSettings,
        *,
        steps: int,
        loop: GenerateSettings | None = None,
        given: Played | None = None,
        between: Callable[[int], object] = lambda step: None,
    ) -> None:
        self._scene = scene
        self._settings = settings
        self._loop = loop
        self._given = given
        self.tokens: list[int] = []  # sampled in each step
        network = copy.deepcopy(scene.network)
        network.set_attn_implementation(settings.attention)
        if settings.weights == "bfloat16":
            for parameter in network.parameters():
                parameter.data = parameter.data.to(torch.bfloat16)
        self._player = loop and copy_to_play(network, loop.precision)
        self._recorder = Recorder(between, gradients=given is not None)
        # One row per group. The step decides which secrets are played, as in ours.
        rows = steps * scene.games // GROUP
        prompt = [{"role": "system", "content": scene.recipe.style.system}]
        with tempfile.TemporaryDirectory() as folder:
            self.trainer = GRPOTrainer(
                model=network,
                args=self._arguments(folder, steps),
                reward_funcs=self._reward,
                train_dataset=Dataset.from_dict({"prompt": [prompt] * rows}),
                processing_class=scene.tokenizer.inner,
                rollout_func=self._rollout,
                callbacks=[self._recorder],
            )

        self.trainer.remove_callback(PrinterCallback)

    def run(self) -> list[float]:
        """Seconds of each step, including the first."""
        self.trainer.train()
        return self._recorder.seconds

    @property
    def gradient(self) -> dict[str, torch.Tensor]:
        return self._recorder.gradient

    def _arguments(self, folder: str, steps: int) -> GRPOConfig:
        settings, sampling = self._settings, self._scene.recipe.sampling
        return GRPOConfig(
            output_dir=folder, use_cpu=True, seed=0, max_steps=steps, shuffle_dataset=False,
            # The weights never change, so every repeat plays equally good games.
            learning_rate=0.0, lr_scheduler_type="constant",
            max_grad_norm=0.0 if self._given else 1.0,  # 0: unclipped
            per_device_train_batch_size=settings.micro_batch,
            gradient_accumulation_steps=self._scene.games // settings.micro_batch,
            num_generations=GROUP, loss_type="grpo", scale_rewards="group", beta=0.0,
            num_iterations=1, temperature=sampling.temperature, top_k=0, top_p=1.0,
            max_completion_length=sampling.max_tokens,
            bf16=settings.weights == "autocast", gradient_checkpointing=False,
            report_to="none", logging_strategy="no", save_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False,
        )  # fmt: skip

    def _reward(self, *, game: list[Game], **_: Any) -> list[float]:
        return [self._scene.recipe.rewards.reward(item).total for item in game]

    def _rollout(self, _: list[Any], trainer: Any) -> dict[str, Any]:
        rollout = self._given or self._play(trainer)
        self.tokens.append(sum(sum(talk.trained) for talk in rollout.talks))
        return rollout.for_trl()

    def _play(self, trainer: Any) -> Played:
        scene, sampling = self._scene, self._scene.recipe.sampling
        if self._loop is None:
            settings = GenerateSettings(keeps_cache=False, attention=self._settings.attention)
            player = OwnGeneration(trainer.model, scene, settings, sampling)
            player.trainer = trainer
        else:
            assert self._player is not None
            copy_weights(trainer.model, self._player)
            player = generate_player(self._player, scene, self._loop, sampling)
        secrets = scene.secrets(trainer.state.global_step)
        games = play(player, new_games(secrets, scene.recipe.words, scene.recipe.rules))
        return Played(games=games, talks=player.talks)
