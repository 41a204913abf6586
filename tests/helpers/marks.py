"""Marks that several test files give to their cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wordle_rl.policy.settings import fetched_folder

SMOLLM2 = Path(fetched_folder("smollm2"))


NEEDS_SMOLLM2 = (
    pytest.mark.smollm2,
    pytest.mark.skipif(not SMOLLM2.is_dir(), reason=f"make smollm2 did not fill {SMOLLM2}"),
)


def with_smollm2(test: Any) -> Any:
    """A test that needs the real weights. It is skipped where they were not fetched."""
    for mark in NEEDS_SMOLLM2:
        test = mark(test)
    return test
