"""Marks that several test files give to their cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from wordle_rl.policy.settings import fetched_folder

SMOLLM2 = Path(fetched_folder("smollm2"))
# Of tests that need the real weights.
NEEDS_SMOLLM2 = [
    pytest.mark.smollm2,
    pytest.mark.skipif(not SMOLLM2.is_dir(), reason=f"make smollm2 did not fill {SMOLLM2}"),
]
