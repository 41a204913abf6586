"""Engines on tiny models, games that they play, and what each token of a game should be."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from peft import LoraConfig, get_peft_model

from tests.helpers.tiny import gemma, many_stops, plain_copy, qwen
from wordle_rl.policy.engine import Completion
from wordle_rl.policy.sampling import Sampling

VOCAB = 64
STOPS = frozenset(many_stops(VOCAB, every=9))
SAMPLED = Sampling(temperature=0.8, max_tokens=7)
GREEDY = Sampling(temperature=0.0, max_tokens=7)


@dataclass(frozen=True)
class EngineModel:
    """A model, and how to make an engine of it."""

    plain: Any  # transformers' own code
    lm: Any  # what the engine runs on
    new: Callable[..., Any]  # (lm, *, stops, max_context) -> engine
    takes_uniforms: bool = True  # False where it draws for itself, so that only greedy games repeat
    close: Callable[[], None] = lambda: None

    @property
    def repeatable(self) -> Sampling:
        """How to draw so that games repeat."""
        return SAMPLED if self.takes_uniforms else GREEDY

    def engine(self, *, stops: frozenset[int] = STOPS, max_context: int = 200) -> Any:
        return self.new(self.lm, stops=stops, max_context=max_context)


def torch_model(model: Any, *, static: bool = False) -> EngineModel:
    """static: whether passes of one token are replayed, as a GPU replays a CUDA graph."""
    from tests.helpers.recording import record
    from wordle_rl.backends.torch.causal_lm import CausalLM
    from wordle_rl.backends.torch.engine import TorchRows
    from wordle_rl.backends.torch.static import StaticRows
    from wordle_rl.policy.prefix_cache import CachedEngine

    def new(lm: Any, *, stops: frozenset[int], max_context: int) -> Any:
        rows = StaticRows(lm, record, step=5) if static else TorchRows(lm)
        return CachedEngine(rows, stop_ids=stops, max_context=max_context)

    return EngineModel(plain=plain_copy(model), lm=CausalLM(model), new=new)


def mlx_model(model: Any) -> EngineModel:
    from wordle_rl.backends import borrow_blas

    borrow_blas()
    from tests.helpers.mlx_tiny import loaded_from
    from wordle_rl.backends.mlx.causal_lm import MlxLM
    from wordle_rl.backends.mlx.engine import MlxRows
    from wordle_rl.policy.prefix_cache import CachedEngine

    def new(lm: Any, *, stops: frozenset[int], max_context: int) -> Any:
        return CachedEngine(MlxRows(lm), stop_ids=stops, max_context=max_context)

    return EngineModel(plain=plain_copy(model), lm=MlxLM(loaded_from(model).model), new=new)


def vllm_model(model: Any) -> EngineModel:
    """Two servers that speak as vLLM does. Requests are as small as can be."""
    from tests.helpers.vllm_server import SmallServer, served_by

    folder = TemporaryDirectory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 with transformers 5.23
        lora = LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")
        get_peft_model(plain_copy(model), lora).save_pretrained(folder.name)
    servers = [SmallServer(plain_copy(model), seed=seed) for seed in (0, 1)]
    resources: list[Any] = [*servers]

    def new(lm: Any, *, stops: frozenset[int], max_context: int) -> Any:
        engine = served_by(servers, prompts_at_once=2, stop_ids=stops, max_context=max_context)
        engine.load(folder.name)
        resources.insert(0, engine)
        return engine

    def close() -> None:
        for resource in resources:
            resource.close()
        folder.cleanup()

    plain = plain_copy(model)
    return EngineModel(plain=plain, lm=None, new=new, takes_uniforms=False, close=close)


# Gemma's window of 4 is far shorter than the games below.
ENGINE_MODELS: dict[str, Callable[[], EngineModel]] = {
    "torch qwen": lambda: torch_model(qwen(VOCAB).eval()),
    "torch gemma": lambda: torch_model(gemma(VOCAB, window=4, softcap=5.0).eval()),
    "torch static qwen": lambda: torch_model(qwen(VOCAB).eval(), static=True),
    "torch static gemma": lambda: torch_model(
        gemma(VOCAB, window=4, softcap=5.0).eval(), static=True
    ),
    "mlx qwen": lambda: mlx_model(qwen(VOCAB).eval()),
    "mlx gemma": lambda: mlx_model(gemma(VOCAB, window=4).eval()),
    "vllm qwen": lambda: vllm_model(qwen(VOCAB).eval()),
}


def assert_same(actual: list[list[Completion]], expected: list[list[Completion]]) -> None:
    for answers, references in zip(actual, expected, strict=True):
        assert [c.ids for c in answers] == [c.ids for c in references]
        assert [c.stop for c in answers] == [c.stop for c in references]
        for a, b in zip(answers, references, strict=True):
            assert np.allclose(a.logprobs, b.logprobs, atol=1e-4)
