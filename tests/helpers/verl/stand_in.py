"""verl's classes around an agent loop, as far as ours uses them, where verl is not installed.

tests/adapters/test_verl_loop.py compares them with verl's own where it is.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from dataclasses import dataclass, field
from typing import Any

MODULE = "verl.experimental.agent_loop.agent_loop"


class AgentLoopBase:
    """Keeps what verl hands to each loop."""

    def __init__(
        self, trainer_config: Any, server_manager: Any, tokenizer: Any, processor: Any,
        dataset_cls: Any, data_config: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        self.config, self.server_manager = trainer_config.config, server_manager
        self.tokenizer = tokenizer


@dataclass(kw_only=True)
class AgentLoopMetrics:
    generate_sequences: float = 0.0


@dataclass(kw_only=True)
class AgentLoopOutput:
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None = None
    reward_score: float | None = None
    num_turns: int = 0
    metrics: AgentLoopMetrics
    extra_fields: dict[str, Any] = field(default_factory=dict)


def installed() -> bool:
    """Whether verl itself is there."""
    return MODULE in sys.modules or importlib.util.find_spec("verl") is not None


def modules() -> dict[str, types.ModuleType]:
    """The stand-ins as modules, for sys.modules."""
    parts = MODULE.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    found = {name: types.ModuleType(name) for name in names}
    for cls in (AgentLoopBase, AgentLoopMetrics, AgentLoopOutput):
        setattr(found[MODULE], cls.__name__, cls)
    return found
