"""A rollout engine for verl without vLLM: this project's engine in a Ray actor."""

import os
from typing import Any

import numpy as np
import ray
import torch
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from tests.examples.verl.cluster import NAME


@ray.remote
class Server:
    def __init__(self, path: str, max_context: int, rank: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).eval()
        self.stops = frozenset([AutoTokenizer.from_pretrained(path).eos_token_id])
        self.max_context = max_context
        self.version: int | None = None
        self.draws = np.random.default_rng(rank)

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        from wordle_rl.backends.torch.causal_lm import CausalLM
        from wordle_rl.backends.torch.engine import TorchRows
        from wordle_rl.policy.prefix_cache import CachedEngine
        from wordle_rl.policy.sampling import Sampling

        lm, params = CausalLM(self.model), sampling_params
        engine = CachedEngine(TorchRows(lm), stop_ids=self.stops, max_context=self.max_context)
        sampling = Sampling(
            temperature=float(params["temperature"]), max_tokens=int(params["max_tokens"])
        )
        uniforms = self.draws.random((1, sampling.max_tokens))
        [completion] = engine.complete([list(prompt_ids)], sampling, uniforms)
        return TokenOutput(
            token_ids=completion.ids,
            log_probs=completion.logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    def load(self, weights: dict[str, Any], version: int | None) -> None:
        state = {name: torch.as_tensor(value) for name, value in weights.items()}
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        ties = {"lm_head.weight"}  # the same tensor as the embedding
        if set(missing) - ties or unexpected:
            raise ValueError(f"missing {missing}, unexpected {unexpected}")
        self.version = version

    async def nothing(self, **_: Any) -> None: ...

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = nothing


class Replica(RolloutReplica):
    """Starts one server."""

    async def launch_servers(self) -> None:
        name = f"{NAME}_{self.replica_rank}"
        server = Server.options(name=name, num_cpus=1, max_concurrency=1000).remote(
            os.path.expanduser(self.model_config.path), self.config.max_model_len, self.replica_rank
        )
        self.servers = [server]
        self._server_handle, self._server_address = server, name


class Sender(BaseRollout):
    """Lives in a training worker, and hands new weights to its server."""

    def __init__(
        self,
        config: Any,
        model_config: Any,
        device_mesh: Any = None,
        replica_rank: int = -1,
        **_: Any,
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        size, rank = self.config.tensor_model_parallel_size, int(os.environ.get("RANK", 0))
        self.replica_rank = rank // size if replica_rank == -1 else replica_rank
        self.sends = rank % size == 0

    async def resume(self, tags: Any) -> None: ...
    async def release(self) -> None: ...

    async def update_weights(
        self,
        weights: Any,
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        # All workers take part: each tensor is gathered when it is asked for.
        state = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        if self.sends:
            server = ray.get_actor(f"{NAME}_{self.replica_rank}")
            await server.load.remote({k: v.numpy() for k, v in state.items()}, global_steps)


RolloutReplicaRegistry.register(NAME, lambda: Replica)
# verl has no public way to register this half.
rollout_base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.Sender"
