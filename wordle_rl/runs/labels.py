"""Short names of runs: the model, and what the command line changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Settings that say nothing about what is learnt, and groups of them with their exceptions.
_LEFT_OUT = {"name", "output_dir", "resume", "restart", "logger", "model", "sweep"}
_GROUPS_LEFT_OUT = ("hydra", "logger", "backend", "trainer")
_KEPT = {"backend", "backend.precision", "trainer.steps", "trainer.epochs"}
_LONGEST = 60  # characters of the changes in a name
_SETTING = re.compile(r"[+~]*([A-Za-z_][\w./@]*)=(.*)", re.S)


def label_run(manifest: Mapping[str, Any]) -> str:
    """A short name such as `mini, lr=1e-4 seed=1`, which no later resume changes."""
    model = manifest.get("choices", {}).get("model") or str(manifest.get("model", "run"))
    found = filter(None, map(_SETTING.fullmatch, manifest.get("command", [])[1:]))
    changes = {word[1]: word[2].strip("'\"") for word in found if _tells(word[1])}
    words = [changes.pop("experiment")] if "experiment" in changes else []
    words += [f"{key.rpartition('.')[2]}={_shorten(value)}" for key, value in changes.items()]
    text = " ".join(words)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return ", ".join(part for part in (_shorten(model), text) if part)


def _tells(key: str) -> bool:
    """Whether a setting may change what is learnt."""
    left_out = key in _LEFT_OUT or re.split(r"[./]", key)[0] in _GROUPS_LEFT_OUT
    return key in _KEPT or not left_out


def _shorten(value: str) -> str:
    """A path by its last part."""
    return value.rstrip("/").rpartition("/")[2] or value
