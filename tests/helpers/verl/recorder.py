"""verl's own synchronous trainer, which also writes down what each step trains on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from tests.helpers.verl.recorded import LOG, MODE

_TOKENS = ("response_mask", "rm_scores", "rollout_log_probs", "old_log_probs")


@register_trainer(MODE)
class RecordedTrainer(PPOTrainerSync):
    """Behaves as PPOTrainerSync in everything else."""

    def __init__(self, config: Any) -> None:
        config.trainer.v1.trainer_mode = "sync"
        super().__init__(config=config)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        fields = ["uid", "prompts", "responses", "extra_info", "extra_fields", *_TOKENS]
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=fields
        )
        path = Path(os.environ[LOG]) / "trained.jsonl"
        with path.open("a") as file:
            for i in range(len(batch.keys)):
                file.write(json.dumps(_row(data, i, self.global_steps)) + "\n")
        return batch


def _row(data: Any, i: int, step: int) -> dict[str, Any]:
    row = {name: data[name][i].tolist() for name in ("prompts", "responses", *_TOKENS)}
    info, extra = data["extra_info"][i], data["extra_fields"][i]
    info, extra = getattr(info, "data", info), getattr(extra, "data", extra)
    uid = getattr(data["uid"][i], "data", data["uid"][i])
    return {
        "step": step,
        "uid": str(uid),
        "secret": info["secret"],
        "split": info["split"],
        "parts": extra["reward_extra_info"],
        **row,
    }
