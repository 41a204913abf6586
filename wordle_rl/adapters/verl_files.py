"""A run with verl: its files, and the games that its agent loop plays by them. Needs no torch.

examples/verl/write_files.py writes rows as Parquet, the agent loop, and the keys that differ by
experiment. The loop of verl_loop.py builds a VerlGame from its plain settings on every node.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wordle_rl.algorithms.base import START, Algorithm
from wordle_rl.algorithms.dr_grpo import DrGrpo
from wordle_rl.algorithms.policy_gradient import PolicyGradient
from wordle_rl.data.rows import read_state
from wordle_rl.game.feedback_table import feedback_table
from wordle_rl.game.knowledge import Knowledge
from wordle_rl.game.rules import Game, Rules, State
from wordle_rl.policy.sampling import Purpose, generator
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards import scoring
from wordle_rl.rewards.scoring import GameReward, build_reward_set
from wordle_rl.rollouts.settings import Recipe, RolloutSettings
from wordle_rl.runs.files import write_bytes
from wordle_rl.runs.instantiate import ConfigError, check_choice, instantiate, option_of
from wordle_rl.runs.tables import write_table
from wordle_rl.training.experiment import Experiment
from wordle_rl.words.splits import WordSettings

AGENT, LOOP = "wordle", "wordle_rl.adapters.verl_loop.WordleLoop"
PARTS = ("train", "val", "test")
YAML, KEYS, CHECKPOINTS = "agent_loop.yaml", "keys.txt", "checkpoints"
_NEVER = 1e9  # a limit that nothing reaches
_ALGORITHMS = {  # ours -> verl's advantages, how losses are averaged, and the loss
    "grpo": ("grpo", "seq-mean-token-mean", "vanilla"),
    "dapo": ("grpo", "token-mean", "vanilla"),
    "dr_grpo": ("grpo", "seq-mean-token-sum-norm", "vanilla"),
    "rloo": ("rloo", "seq-mean-token-sum", "vanilla"),
    "gspo": ("grpo", "seq-mean-token-mean", "gspo"),
}
GROUPS = ("words", "rules", "prompt", "reward", "rollout", "algorithm")  # of the config, whole
Row = dict[str, Any]


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
        chosen: WordSettings = instantiate("words", settings["words"], WordSettings)
        self.words, self.splits = chosen.load()
        if self.splits.digest != settings["splits"]:
            raise ConfigError(
                f"words must be the lists that the files were written with (splits "
                f"{settings['splits'][:12]}), not those of this machine ({self.splits.digest[:12]})"
            )
        rollout: RolloutSettings = instantiate("rollout", settings["rollout"], RolloutSettings)
        knowledge = Knowledge(self.words, feedback_table(self.words))
        self.mixed = chosen.protocol == "all"  # held-out secrets may be trained on, too
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
        given, part = read_state(row, self.words, self.rules), row.get("split")
        held_out = (name for name in ("val", "test") if given.secret in self.splits.secrets(name))
        if not self.mixed and part != (home := next(held_out, "train")):
            raise ValueError(f"{given.secret} is a {home} secret and must not be a {part} secret")
        state = given.state(self.rules.max_turns)
        return Game(given.secret, self.words.allowed_set, self.rules, state=state)

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
        found = {f"reward_{name}": share for name, share in shares.items()}
        return {"acc": float(game.won), "guesses": float(len(game.turns)), **found}


def check_choices(setup: Experiment) -> None:
    """Raise ConfigError for choices with which the run in verl would be another one."""
    recipe, model = setup.recipe, setup.model
    check_choice("algorithm", option_of(recipe.algorithm), (*_ALGORITHMS,))
    check_choice("algorithm.reference", recipe.algorithm.reference, (START,))
    check_choice("rollout", recipe.rollout.kind, ("game", "turn"))
    check_choice("rollout.form", recipe.rollout.form, ("conversation", "tool"))
    if taken := [key for key in ("init_from", "resume") if setup.config[key] is not None]:
        raise ConfigError(f"{taken[0]} must be null for verl, not {setup.config[taken[0]]}")
    if recipe.sampling.grammar is not None:
        raise ConfigError("sampling.grammar must be null for verl, which draws without it")
    if setup.trainer.lag:
        raise ConfigError(f"trainer.lag must be 0 for verl, not {setup.trainer.lag}")
    if model.shape or model.is_adapter:
        raise ConfigError(
            f"model.path must be a hub name or a folder with whole weights for verl, not "
            f"{model.path}"
        )


def build_rows(setup: Experiment) -> dict[str, list[Row]]:
    """The rows of each part: train, val and test."""
    recipe, turns = setup.recipe, setup.recipe.rules.max_turns
    if recipe.states is not None:
        given = [recipe.states[i] for i in range(len(recipe.states))]
        secrets, starts = [g.secret for g in given], [g.state(turns) for g in given]
    else:
        secrets = _choose_training_secrets(recipe)
        starts = [State(max_turns=turns)] * len(secrets)
        if recipe.history is not None:
            starts = recipe.history.states(
                secrets, range(len(secrets)), seed=recipe.seed, step=0, max_turns=turns
            )
    empty = [State(max_turns=turns)]
    return {
        "train": _rows_of(setup, "train", secrets, starts),
        "val": _rows_of(setup, "val", setup.validation, empty * len(setup.validation)),
        "test": _rows_of(setup, "test", setup.test, empty * len(setup.test)),
    }


def _choose_training_secrets(recipe: Recipe) -> list[str]:
    """The training secrets, and as many allowed words as words.allowed_share asks for."""
    share, pool = recipe.allowed_share, recipe.allowed_secrets
    if not share:
        return list(recipe.secrets)
    secrets = [] if share == 1 else list(recipe.secrets)
    wanted = round(len(secrets) * share / (1 - share)) if share < 1 else len(recipe.secrets)
    draw = generator(Purpose.ALLOWED_SECRETS, seed=recipe.seed)
    return [*secrets, *(pool[i] for i in draw.permutation(len(pool))[:wanted])]


def _rows_of(
    setup: Experiment, part: str, secrets: Sequence[str], starts: Sequence[State]
) -> list[Row]:
    style = setup.recipe.style
    return [
        {
            "data_source": AGENT,
            "agent_name": AGENT,
            # verl shows it; the agent loop makes the prompt's tokens from the state.
            "prompt": [
                {"role": "system", "content": style.system},
                {"role": "user", "content": style.opening(state)},
            ],
            "ability": "game",
            "reward_model": {"style": "rule", "ground_truth": secret},
            "extra_info": {
                "split": part,
                "index": number,
                "secret": secret,
                # As text, because Parquet has no type for a column of empty lists.
                "past_guesses": json.dumps([[clue.guess, clue.marks] for clue in state.clues]),
                "splits": setup.splits.digest,
            },
        }
        for number, (secret, state) in enumerate(zip(secrets, starts, strict=True))
    ]


def map_keys(setup: Experiment) -> dict[str, Any]:
    """verl's keys that differ from experiment to experiment."""
    actor, rollout, model = (f"actor_rollout_ref.{p}" for p in ("actor", "rollout", "model"))
    recipe, optim, settings = setup.recipe, setup.optim, setup.model
    algorithm, groups = recipe.algorithm, recipe.rollout.groups
    assert isinstance(algorithm, PolicyGradient)
    advantages, mean, loss = _ALGORITHMS[option_of(algorithm)]
    keys: dict[str, Any] = {
        f"{model}.path": settings.location,
        "data.train_batch_size": groups,
        "data.max_prompt_length": settings.max_context - 1,
        "data.max_response_length": settings.max_context,
        "data.seed": recipe.seed,
        f"{rollout}.max_model_len": settings.max_context,
        f"{rollout}.n": recipe.rollout.num_generations,
        f"{rollout}.temperature": recipe.sampling.temperature,
        f"{actor}.ppo_max_token_len_per_gpu": 4 * settings.max_context,
        f"{actor}.ppo_mini_batch_size": max(groups // algorithm.minibatches, 1),
        f"{actor}.ppo_epochs": algorithm.epochs,
        f"{actor}.optim.lr": optim.lr,
        f"{actor}.optim.lr_warmup_steps": optim.warmup_steps,
        f"{actor}.optim.lr_scheduler_type": optim.schedule,
        f"{actor}.optim.weight_decay": optim.weight_decay,
        f"{actor}.optim.betas": [optim.beta1, optim.beta2],
        f"{actor}.optim.clip_grad": optim.clip_grad_norm or _NEVER,
        "algorithm.adv_estimator": advantages,
        "algorithm.norm_adv_by_std_in_grpo": algorithm.scale == "std",
        f"{actor}.loss_agg_mode": mean,
        f"{actor}.policy_loss.loss_mode": loss,
        f"{actor}.clip_ratio_low": algorithm.clip_low,
        f"{actor}.clip_ratio_high": algorithm.clip_high,
        f"{actor}.entropy_coeff": algorithm.entropy,
        f"{actor}.use_kl_loss": algorithm.beta > 0 and algorithm.kl == "loss",
        f"{actor}.kl_loss_coef": algorithm.beta,
        "algorithm.use_kl_in_reward": algorithm.beta > 0 and algorithm.kl == "reward",
        "algorithm.kl_ctrl.kl_coef": algorithm.beta,
        "trainer.experiment_name": setup.config["name"],
        "trainer.total_training_steps": setup.trainer.steps,
        "trainer.test_freq": setup.trainer.validate_every,
        "trainer.save_freq": setup.trainer.checkpoint_every,
    }
    if optim.schedule == "cosine":
        keys[f"{actor}.optim.min_lr_ratio"] = optim.final_lr_ratio
        keys[f"{actor}.optim.zero_indexed_step"] = False
    # verl's vLLM draws all tokens, whatever rollout.engine says.
    if (cap := dataclasses.replace(algorithm, drawn_elsewhere=True).cap) is not None:
        keys["algorithm.rollout_correction.rollout_is"] = "token"
        keys["algorithm.rollout_correction.rollout_is_threshold"] = cap
    if isinstance(algorithm, DrGrpo):
        keys[f"{actor}.loss_scale_factor"] = algorithm.normalizer or algorithm.budget
    if lora := settings.lora:
        keys[f"{model}.lora_rank"], keys[f"{model}.lora_alpha"] = lora.rank, round(lora.alpha)
    return keys


def write_folder(folder: Path, setup: Experiment) -> dict[str, int]:
    """Write all files. Returns the number of rows of each part. Raises ConfigError."""
    import yaml

    if (folder / CHECKPOINTS).exists():
        raise ConfigError(f"output={folder} has the checkpoints of another run: name another one")
    check_choices(setup)
    settings, rows, keys = choose_settings(setup), build_rows(setup), map_keys(setup)
    game = VerlGame(settings)
    for row in (row for part in PARTS for row in rows[part]):
        game.begin(row["extra_info"])  # raises for a secret in the wrong part
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        write_table(folder / f"{part}.parquet", rows[part], "parquet")
    # Plain values: verl's Hydra must build the loop, but nothing of the settings inside it.
    loop = {"name": AGENT, "_target_": LOOP, "_recursive_": False, "_convert_": "all"}
    text = yaml.safe_dump([{**loop, "game": settings}], sort_keys=False, allow_unicode=True)
    write_bytes(folder / YAML, text.encode())
    lines = [f"{key}={value!r}\n" for key, value in keys.items()]
    write_bytes(folder / KEYS, "".join(lines).encode())
    return {part: len(rows[part]) for part in PARTS}
