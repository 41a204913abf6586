"""Finds the entry of a metric in the table, and its name in TensorBoard."""

from __future__ import annotations

import re
from functools import lru_cache

from wordle_rl.training.metric_table import TABLE, Metric

OTHER = "9 other"  # the group of what has no entry, such as a user's metric


@lru_cache(maxsize=4096)  # a run has about 150 keys
def find(key: str) -> Metric | None:
    """The entry of a key; None for one that the table does not know."""
    return next((metric for metric in TABLE if _pattern(metric.key).fullmatch(key)), None)


@lru_cache(maxsize=4096)
def tag_of(key: str) -> str:
    """The name of a key in TensorBoard. One without an entry is in the group OTHER."""
    metric = find(key)
    if metric is None:
        return f"{OTHER}/{key}"
    found = _pattern(metric.key).fullmatch(key)
    values = iter(found.groups() if found else ())
    return re.sub(r"<\w+>", lambda _: next(values), metric.tag)


@lru_cache(maxsize=4096)
def _pattern(key: str) -> re.Pattern[str]:
    parts = re.split(r"<\w+>", key)
    return re.compile("([^/]+)".join(map(re.escape, parts)))
