"""Settings whose keys verl must take, and the kinds of values that its keys have by default.

defaults.json holds the kind of every key that we write, as verl 0.9.1 composes it. `make verl`
compares it with verl's own, and the tests without verl compare what we write with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wordle_rl.adapters.verl.limits import ALGORITHMS

DEFAULTS: dict[str, str] = json.loads(
    (Path(__file__).parent / "defaults.json").read_text(encoding="utf-8")
)
CASES = [
    "model=qwen3b reward=phase2 num_generations=8 words=original",  # the command of docs/VERL.md
    *(f"model=tiny algorithm={name}" for name in ALGORITHMS),
    "model=tiny algorithm.beta=0.1 algorithm.importance_cap=2.0 algorithm.entropy=0.01",
    "model=tiny algorithm.beta=0.1 algorithm.kl=reward algorithm.minibatches=4",
    "model=tiny backend.precision=fp32 optim.schedule=constant trainer.validation_temperature=1.0",
    "model=qwen3b rollout.form=tool prompt=symbols 'name=my run'",
    "experiment=qwen3b_server",
]


def kind_of(value: Any) -> str:
    """number, truth, text, list or null."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "truth"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "list"


def as_bash_hands_on(value: Any) -> Any:
    """A value with what bash puts in for its variables."""
    if value in ("${NNODES:-1}", "${GPUS:-1}"):
        return 1
    return value.replace("$here", "/files") if isinstance(value, str) else value
