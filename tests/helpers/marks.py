"""Marks that several test files give to their cases."""

import pytest

from wordle_rl.policy.models import fetched_folder


def needs_real(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that needs the weights of a fetched model."""
    exists = fetched_folder(name).is_dir()
    return [pytest.mark.real, pytest.mark.skipif(not exists, reason=f"wordle-rl fetch {name}")]
