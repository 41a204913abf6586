"""What ends a run before its last step, and the line that says so."""

from wordle_rl.policy.batch import DoesNotFit, ran_out_of_memory
from wordle_rl.policy.engine import EngineLost
from wordle_rl.rewards.scoring import RewardFailed


class TrainingFailed(RuntimeError):
    """The run cannot continue. The message says why, and where its state was saved."""


class MemoryFull(RuntimeError):
    """The run is above its memory limit."""


class CallbackFailed(RuntimeError):
    """A callback of the user's raised an error, its cause."""


def describe_fault(error: BaseException) -> str | None:
    """One line about a lack of memory, lost servers, or a reward or callback that failed.

    None for other errors.
    """
    if isinstance(error, DoesNotFit | EngineLost | MemoryFull | RewardFailed | CallbackFailed):
        return str(error)
    if ran_out_of_memory(error):
        return (
            "out of memory: lower rollout.num_generations, sampling.max_tokens or "
            "backend.micro_batch_tokens"
        )
    return None
