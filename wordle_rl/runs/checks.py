"""Checks of settings that several parts share; a wrong value raises ValueError naming its key."""

from __future__ import annotations

MOST_GAMES = 1_000_000  # side by side; more would fill any memory
MOST_SAMPLES = 10_000  # games per secret


def check_choice(key: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless the value of a setting is one of the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")


def check_seed(key: str, value: int) -> None:
    """Raise ValueError unless every generator takes this seed."""
    if not 0 <= value < 2**63:
        raise ValueError(f"{key} must be a whole number from 0 to below 2**63, not {value}")
