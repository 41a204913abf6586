"""How long a run of a pretrained model takes on a CPU: its operations, at the machine's own rate.

A GPU waits for much else, so nothing is said of one.
"""

import time
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from wordle_rl.backends.memory import plan_memory
from wordle_rl.backends.sizes import Sizes, is_large
from wordle_rl.backends.torch.devices import DTYPES, choose_computing, choose_device
from wordle_rl.policy.computing import Computing
from wordle_rl.training.experiment import Experiment
from wordle_rl.training.work import Work

_ROWS = 128  # more make products hardly faster
# At best and at worst: the share of turns that are played and of groups that teach, the tokens of
# an answer, and the shares of the rate that a model reaches when it plays and when it learns.
_ENDS = ((0.5, 12, 1.0, 0.6), (1.0, 1_000_000, 0.55, 0.4))


def foretell(work: Work, setup: Experiment, computing: Computing | None = None) -> Work:
    """The work of a run with its least and greatest seconds, if nothing else is running.

    The work as it is on a GPU, and for a small model, data=, vLLM, a second model or fresh prompts.
    """
    recipe, rollout, algorithm = setup.recipe, setup.recipe.rollout, setup.recipe.algorithm
    backend: Any = setup.backend
    helped = recipe.dialogues or setup.reference or setup.servers or rollout.form == "fresh"
    if helped or not is_large(setup.model) or choose_device(backend, 0) != "cpu":
        return work
    computing = computing or choose_computing(backend, torch.device("cpu"))
    dtype, plan = DTYPES[computing.precision], plan_memory(setup, "cpu", computing.precision)
    sizes, game, most = plan.sizes, plan.game, recipe.sampling.max_tokens
    (games, prompts, _), held, size = work.step, work.held_out, rollout.num_generations
    replies = max(game.whole - game.opening - prompts // (rollout.groups * size) * most, 0)
    later = max(plan.longest - game.opening - recipe.rules.most_answers * most, 0)
    apart = rollout.kind != "game"  # each answer is learnt behind its own prompt
    alike = (size if apart else plan.rows) if plan.shared else 1  # prompts that are read once
    again = (prompts if apart else games) / alike * (game.opening + replies / 2)
    layers = sizes.weights_in_layers + sizes.layers * sizes.heads * sizes.head_dim * plan.longest
    head, free = sizes.vocabulary * sizes.hidden, recipe.sampling.grammar is None
    scored = free or algorithm.needs.allowed or not plan.games  # when it learns, all tokens
    rows = min(plan.games or plan.held_out_games * plan.beams, _ROWS)
    fast, slow = (2 / measure_rate(dtype, sizes, n) / backend.processes for n in (_ROWS, rows))
    passes = algorithm.epochs * (2 + (plan.lora is None) + plan.checkpointing)
    passes += algorithm.needs.reference + (algorithm.epochs * algorithm.minibatches > 1)
    seconds = []
    for share, brief, playing, learning in _ENDS:
        answer, drawn = min(most, brief), slow * (layers + free * head)
        read, learn = share * layers * fast, fast * (layers + scored * head)
        play = bool(plan.games) * (games * replies * read + prompts * answer * drawn)
        look = held.games * later * read + held.prompts * plan.beams * answer * drawn
        update = games * replies * read + again * layers * fast + prompts * answer * learn
        update *= passes * (1 if algorithm.needs.zero_advantages else share)
        seconds.append(share * (work.steps * (play / playing + update / learning) + look / playing))
    return replace(work, seconds=(seconds[0], seconds[1]))


@cache  # the trials of a study ask again
def measure_rate(dtype: torch.dtype, sizes: Sizes, rows: int) -> float:
    """Operations a second of a model's largest matrices, more than caches hold, on some rows."""
    size, product = sizes.inner * sizes.hidden, torch.nn.functional.linear
    weights = torch.ones(max(2**25 // size, 2), sizes.inner, sizes.hidden, dtype=dtype)
    x = torch.ones(rows, sizes.hidden, dtype=dtype)
    product(x, weights[0])  # prepares the others
    begin, count = time.process_time(), 0
    while (spent := time.process_time() - begin) < 0.1:
        product(x, weights[count % len(weights)])
        count += 1
    return 2 * rows * size * count * torch.get_num_threads() / spent
