"""Reads the grammar of hydra.sweeper.params: choice, range, interval, int and tag(log, ...).

As in Hydra's Optuna plugin, range(1, 4) includes 4, and an interval between whole numbers gives
whole numbers. shuffle and glob are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
)

from wordle_rl.runs.instantiate import ConfigError
from wordle_rl.sweeps.space import Choice, Range, Scalar


def parse_params(params: Mapping[str, Any]) -> tuple[dict[str, Choice | Range], list[str]]:
    """Returns the search space, and an override for each entry that has a single value."""
    return parse_overrides([f"{key}={_format_value(value)}" for key, value in params.items()])


def parse_overrides(lines: Sequence[str]) -> tuple[dict[str, Choice | Range], list[str]]:
    """Returns the search space of the overrides, and those with a single value as written."""
    space, fixed = {}, []
    for override in OverridesParser.create().parse_overrides(list(lines)):
        if override.is_sweep_override():
            try:
                space[override.get_key_element()] = _parse_dimension(override)
            except ValueError as error:
                raise ConfigError(f"{override.input_line}: {error}") from None
        else:
            fixed.append(str(override.input_line))
    return space, fixed


def _format_value(value: Any) -> str:
    return "null" if value is None else str(value).lower() if value is True or value is False \
        else str(value)  # fmt: skip


def _parse_dimension(override: Override) -> Choice | Range:
    value: Any = override.value()
    if getattr(value, "shuffle", False):
        raise ValueError("shuffle is not supported, as the sampler decides the order")
    log = "log" in getattr(value, "tags", ())
    if unknown := set(getattr(value, "tags", ())) - {"log"}:
        raise ValueError(f"the only tag is log, not {', '.join(sorted(unknown))}")
    if isinstance(value, ChoiceSweep):
        if log:
            raise ValueError("a choice has no tags")
        values = tuple(_parse_scalar(item) for item in value.list)
        return Choice(values=values, texts=tuple(override.sweep_string_iterator()))
    if isinstance(value, RangeSweep):
        assert value.start is not None and value.stop is not None
        numbers = (value.start, value.stop, value.step)
        low, high, step = numbers if _all_whole(*numbers) else map(float, numbers)
        return Range(low=low, high=high, step=None if log and step == 1 else step, log=log)
    if isinstance(value, IntervalSweep):
        assert value.start is not None and value.end is not None
        ends = (value.start, value.end)
        low, high = ends if _all_whole(*ends) else map(float, ends)
        return Range(low=low, high=high, log=log)
    raise ValueError("give choice(...), range(...) or interval(...)")


def _all_whole(*numbers: Any) -> bool:
    return all(isinstance(number, int) for number in numbers)


def _parse_scalar(item: Any) -> Scalar:
    """A value that a study can store. Lists and groups of settings become text."""
    if isinstance(item, QuotedString):
        return item.text
    if item is None or isinstance(item, bool | int | float | str):
        return item
    return Override._get_value_element_as_str(item)
