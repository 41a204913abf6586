"""Marks that several test files give to their cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def half_slow(cases: Iterable[Any]) -> list[Any]:
    """Parameters of which every second is tried by the slow tests alone, to save time."""
    return [
        pytest.param(case, marks=[pytest.mark.slow] if number % 2 else [])
        for number, case in enumerate(cases)
    ]
