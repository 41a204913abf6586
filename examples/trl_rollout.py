"""Our games and rewards in TRL's GRPOTrainer, through its rollout_func.

    pip install trl==1.16.0 -c constraints.txt
    python examples/trl_rollout.py                          # two steps, 15 s on a CPU
    python examples/trl_rollout.py --steps 10 --credit turn
    python examples/trl_rollout.py --steps 20 reward=win_only prompt=letters

The words behind the options are choices of train.py. Words, rules, prompt, rewards, model and
sampling are taken from them. Loss and optimiser are TRL's own. So are advantages with --credit
trl, which credits whole games: one advantage for each game. With --credit turn each token has the
advantage of its guess. TRL calls rollout_func experimental.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from transformers import AutoModelForCausalLM, AutoTokenizer

from wordle_rl import token_advantages
from wordle_rl.backends.torch.causal_lm import CausalLM
from wordle_rl.backends.torch.engine import TorchRows
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.game.rules import State
from wordle_rl.policy.prefix_cache import CachedEngine
from wordle_rl.policy.sampling import Draws
from wordle_rl.policy.tokenizer import HFTokenizer
from wordle_rl.rollouts.chat import Chat
from wordle_rl.rollouts.forms import Form, build_form
from wordle_rl.rollouts.play import ModelPlayer, new_games, play
from wordle_rl.runs.paths import CONF
from wordle_rl.training.experiment import Experiment

SECRETS, GAMES = 4, 8  # of a step, and of each secret


def build_setup(overrides: list[str]) -> Experiment:
    """The experiment that train.py would run."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return build_experiment(resolve(compose("config", overrides)))


def build_rollout(setup: Experiment, form: Form) -> Callable[[list[Any], Any], dict[str, Any]]:
    """TRL's rollout_func: it gets the prompts of a step, and returns tokens and rewards."""
    recipe = setup.recipe

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        secrets = [messages[-1]["secret"] for messages in prompts]  # TRL gives nothing but prompts
        model = trainer.accelerator.unwrap_model(trainer.model)
        training = model.training
        model.eval()  # no dropout while playing
        engine = CachedEngine(
            TorchRows(CausalLM(model)),
            stop_ids=form.chat.tokenizer.stop_ids,
            max_context=setup.model.max_context,
        )
        first = trainer.accelerator.process_index * len(prompts)
        draws = Draws(seed=recipe.seed, step=trainer.state.global_step, first_rollout=first)
        player = ModelPlayer(engine=engine, form=form, sampling=recipe.sampling, draws=draws)
        games = play(player, new_games(secrets, recipe.words, recipe.rules))
        model.train(training)
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "game_reward", "won")
        names += ("turn_rewards", "turn_tokens")
        out: dict[str, Any] = {name: [] for name in names}
        for game, [talk] in zip(games, player.all_talks(games), strict=True):
            begin = talk.answers[0].start
            out["prompt_ids"].append(talk.ids[:begin])
            out["completion_ids"].append(talk.ids[begin:])
            out["logprobs"].append(talk.logprobs[begin:])
            out["env_mask"].append([int(drawn) for drawn in talk.trained[begin:]])
            reward = recipe.rewards.reward(game)
            out["game_reward"].append(reward.total)
            out["turn_rewards"].append(list(reward.turn_totals))
            answers = talk.answers.values()
            out["turn_tokens"].append([sum(talk.trained[i] for i in place) for place in answers])
            out["won"].append(float(game.won))
        return out

    return rollout


def game_reward(game_reward: list[float], **_: Any) -> list[float]:
    """What each game earned. The column is rollout_func's."""
    return game_reward


def won(won: list[float], **_: Any) -> list[float]:
    """1 for a won game. It is shown, and has no weight."""
    return won


def credit_by_turn(trainer: type) -> type:
    """TRL's GRPOTrainer with an advantage for each token, on one process.

    rollout_func's columns are in `inputs` by the time that games are scored, in groups of
    num_generations. TRL's loss takes advantages [games, tokens] of a subclass.
    """

    class TurnCredit(trainer):
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            batch = super()._generate_and_score_completions(inputs)
            found = token_advantages(
                rewards=[game["turn_rewards"] for game in inputs],
                tokens=[game["turn_tokens"] for game in inputs],
                groups=[number // self.num_generations for number in range(len(inputs))],
                baseline="standardised",
            )
            drawn = (batch["completion_mask"] * batch["tool_mask"]).bool()
            batch["advantages"] = torch.zeros(drawn.shape)
            batch["advantages"][drawn] = torch.tensor(np.concatenate(found), dtype=torch.float32)
            return batch

    return TurnCredit


def build_trainer(setup: Experiment, steps: int, folder: str, credit: str = "trl") -> Any:
    """TRL's trainer, which plays SECRETS x GAMES games in each step.

    credit: "trl" for its own advantage of each game, "turn" for one of each guess.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    recipe, path = setup.recipe, setup.model.location
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    form = build_form("conversation", Chat(HFTokenizer(tokenizer)), recipe.style)

    def row(secret: str) -> dict[str, Any]:
        system = {"role": "system", "content": recipe.style.system, "secret": ""}
        user = {"role": "user", "content": recipe.style.opening(State()), "secret": secret}
        return {"prompt": [system, user]}

    settings = GRPOConfig(
        output_dir=folder, max_steps=steps, learning_rate=1e-5, beta=0.0, seed=recipe.seed,
        per_device_train_batch_size=SECRETS * GAMES, num_generations=GAMES,
        temperature=recipe.sampling.temperature, max_completion_length=setup.model.max_context,
        reward_weights=[1.0, 0.0], use_cpu=True, bf16=False, activation_checkpointing=False,
        report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = credit_by_turn(GRPOTrainer) if credit == "turn" else GRPOTrainer
    return trainer(
        model=AutoModelForCausalLM.from_pretrained(path, dtype="float32"),
        reward_funcs=[game_reward, won], args=settings, processing_class=tokenizer,
        train_dataset=Dataset.from_list([row(secret) for secret in recipe.secrets]),
        rollout_func=build_rollout(setup, form),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--output", default="outputs/trl", help="a folder for TRL")
    parser.add_argument(
        "--credit", choices=("trl", "turn"), default="trl", help="of games or guesses"
    )
    args, overrides = parser.parse_known_args()
    setup = build_setup(["model=mini", *overrides])
    trainer = build_trainer(setup, args.steps, args.output, args.credit)
    trainer.train()
    # Why it does not learn: wordle-rl doctor <output>/trainer_state.json
    trainer.state.save_to_json(str(Path(args.output, "trainer_state.json")))


if __name__ == "__main__":
    main()
