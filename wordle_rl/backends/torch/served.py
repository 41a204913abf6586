"""Lets vLLM servers play for the torch policy, with rollout.engine=vllm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from wordle_rl.backends.torch.adapters import save_adapter
from wordle_rl.backends.torch.policy import TorchPolicy
from wordle_rl.policy.policy import Policy
from wordle_rl.training.experiment import Experiment


@contextmanager
def let_play(
    policy: TorchPolicy, setup: Experiment, run: Path, check: Callable[[], None]
) -> Iterator[Policy]:
    """The policy, with the engine that rollout.engine names. It prints what servers change.

    run: the run's folder. check: raises to stop the run while no server answers.
    """
    servers = setup.servers
    if servers is None:
        yield policy
        return
    from wordle_rl.backends.vllm.policy import Served, serve  # needs httpx2

    network: Any = policy.model
    served = Served(
        save_adapter=partial(save_adapter, network),
        vocabulary=network.get_input_embeddings().weight.shape[0],
        max_context=setup.model.max_context,
        temperature=setup.recipe.sampling.scoring_temperature,
    )
    with serve(policy, served, servers, run, check) as player:
        urls = ", ".join(servers.urls)
        print(
            f"vLLM plays ({urls}) and draws for itself: neither the seed nor resume= repeats games",
            flush=True,
        )
        yield player
