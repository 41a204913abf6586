"""The settings of the MLX backend reach what it builds."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from tests.helpers.mlx_tiny import settings_of
from wordle_rl.backends.mlx import backend as mlx_backend
from wordle_rl.policy.optim import Optim
from wordle_rl.policy.settings import MlxSettings


def test_every_setting_of_the_backend_changes_what_is_built(monkeypatch):  # row 24
    cached: list[int] = []
    monkeypatch.setattr(mx, "set_cache_limit", cached.append)

    def built(**settings: Any) -> dict[str, Any]:
        policy = mlx_backend.build_policy(
            settings_of("embedded/micro"), MlxSettings(**settings), temperature=1.0, optim=Optim()
        )
        layer = type(policy.lm.model.layers[0]).__name__
        return {
            "precision": policy._weights_in_use["model.norm.weight"].dtype == mx.bfloat16,
            "micro_batch_tokens": policy.micro_batch_tokens,
            "gradient_checkpointing": layer == "Checkpointed",
            "cache_gb": cached[-1],
        }

    other = {"precision": "fp32", "micro_batch_tokens": 7, "gradient_checkpointing": True,
             "cache_gb": 0.5}  # fmt: skip
    assert other.keys() == MlxSettings.__dataclass_fields__.keys()
    usual = {"precision": "bf16"}  # auto may be either
    plain = built(**usual)
    try:
        for name, value in other.items():
            found = built(**usual | {name: value})
            changed = {key for key, had in plain.items() if found[key] != had}
            assert changed == {name}
    finally:
        mx.disable_compile()
