"""Tests of studies."""

from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_garbage_is_collected() -> None:
    """statsmodels collects garbage in each correction, half a second beside many tests."""
    from statsmodels.stats import multitest

    multitest.gc = SimpleNamespace(collect=lambda: 0)  # pyright: ignore[reportAttributeAccessIssue]
