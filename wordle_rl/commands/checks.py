"""What must fit together in a run: checks that need no model and several parts of its settings."""

from wordle_rl.algorithms.base import Algorithm
from wordle_rl.policy.sampling import Sampling
from wordle_rl.policy.settings import BackendSettings, ModelSettings
from wordle_rl.prompts.styles import PromptStyle
from wordle_rl.rewards.format import Format
from wordle_rl.rewards.scoring import RewardSet
from wordle_rl.rollouts.settings import Recipe, RolloutSettings
from wordle_rl.runs.instantiate import ConfigError, option_of
from wordle_rl.training.experiment import TrainerSettings
from wordle_rl.words.splits import Splits


def refuse(wrong: object, message: str) -> None:
    """Raise ConfigError with a message if something is wrong."""
    if wrong:
        raise ConfigError(message)


def check_step(
    algorithm: Algorithm,
    rollout: RolloutSettings,
    backend: BackendSettings,
    sampling: Sampling,
    model: ModelSettings,
) -> None:
    """Raise ConfigError where a step cannot be drawn or shared out with these settings."""
    count, groups = backend.processes, rollout.groups
    number = "backend.devices" if backend.devices > 1 else "WORLD_SIZE"
    refuse(
        algorithm.minibatches > groups,
        f"algorithm.minibatches must be at most rollout.groups={groups}, because groups are not "
        f"split, not {algorithm.minibatches}",
    )
    refuse(
        groups % count,
        f"rollout.groups must be a multiple of {number}={count}, so that each process has the same "
        f"number of groups, not {groups}",
    )
    refuse(
        algorithm.needs.allowed and sampling.grammar is None,
        "algorithm.semantic must be 0 without sampling.grammar=words or clues, whose choices it "
        "teaches",
    )
    refuse(
        sampling.grammar is not None and rollout.engine != "own",
        "sampling.grammar must be null with rollout.engine=vllm, which draws without it",
    )
    refuse(
        sampling.beams > 1 and rollout.engine != "own",
        "sampling.beams must be 1 with rollout.engine=vllm, which tells the log-probabilities of "
        f"drawn tokens alone, not {sampling.beams}",
    )
    refuse(
        sampling.max_tokens >= model.max_context,
        f"sampling.max_tokens must be below model.max_context={model.max_context}, which must "
        f"hold a whole game, not {sampling.max_tokens}",
    )


def check_dialogues(file: str, algorithm: Algorithm, rollout: RolloutSettings) -> None:
    """Raise ConfigError where the dialogues of a data file cannot be learnt."""
    imitation, learn = algorithm.imitates, f"to learn the answers of data={file}, not"
    fits = imitation is not None and not imitation.every_guess and not imitation.slips
    count = rollout.num_generations
    refuse(not fits, f"algorithm must be sft {learn} {option_of(algorithm)}")
    refuse(rollout.kind != "game", f"rollout must be game {learn} {rollout.kind}")
    refuse(count != 1, f"num_generations must be 1 {learn} {count}")
    refuse(rollout.form == "tool", f"rollout.form must be conversation or fresh {learn} tool")


def check_recipe(recipe: Recipe, splits: Splits, trainer: TrainerSettings) -> None:
    """Raise ConfigError where rewards, secrets, teacher and length of a run do not fit."""
    check_thoughts(recipe.rewards, recipe.style, "reward")
    refuse(len(splits.val) < 2, "words.val must hold out 2 secrets or more to choose a checkpoint")
    imitation = recipe.algorithm.imitates
    if recipe.teacher is not None and imitation is not None:
        others = {*recipe.secrets, *recipe.allowed_secrets} - {*recipe.words.answers}
        refuse(
            imitation.player in ("random_consistent", "entropy", "entropy_consistent") and others,
            "algorithm.player must be random_consistent_allowed where any allowed word can be the "
            f"secret, not {imitation.player}, which finds answers alone; or set "
            "words.allowed_share=0",
        )
    refuse(
        trainer.epochs is not None and recipe.allowed_share,
        "trainer.epochs must be null with words.allowed_share, whose words have no epoch: set "
        "trainer.steps",
    )


def check_thoughts(rewards: RewardSet, style: PromptStyle, where: str) -> None:
    """Rewards may want think blocks, which the prompt must ask for."""
    for name, part in rewards.components.items():
        refuse(
            isinstance(part, Format) and part.think and not style.think,
            f"{where}.components.{name}.think=true needs prompt.think=true, which asks for them",
        )
