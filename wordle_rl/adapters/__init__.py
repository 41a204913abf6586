"""Wordle for other libraries. Each file needs the library that it adapts to; nothing imports it."""

from __future__ import annotations

ENVIRONMENT = "WordleRL/Wordle-v0"


def register_gymnasium() -> None:
    """Add the environment to Gymnasium's registry, unless it is there.

    `import gymnasium` calls this where this package is installed, because it is an entry point.
    """
    from gymnasium.envs.registration import register, registry

    if ENVIRONMENT not in registry:
        register(id=ENVIRONMENT, entry_point="wordle_rl.adapters.gym:WordleEnv")
