"""Search spaces in the grammar of Hydra's Optuna sweeper, read into Optuna's distributions.

choice, range, interval, int and tag(log, ...) are known. range(1, 4) includes 4, and an interval
between whole numbers gives whole numbers. shuffle and glob are not supported.
"""

from __future__ import annotations

import itertools
import math
import re
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
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from wordle_rl.runs.instantiate import ConfigError

Scalar = None | bool | int | float | str
Params = Mapping[str, Scalar]
Distribution = CategoricalDistribution | IntDistribution | FloatDistribution
Space = Mapping[str, Distribution]
_PLAIN = re.compile(r"[\w./:+-]+|[\[{].*[\]}]")  # needs no quotes on the command line


def parse_params(params: Mapping[str, Any]) -> tuple[dict[str, Distribution], list[str]]:
    """Returns the search space, and an override for each entry that has a single value."""
    return parse_overrides([f"{key}={format_value(value)}" for key, value in params.items()])


def parse_overrides(lines: Sequence[str]) -> tuple[dict[str, Distribution], list[str]]:
    """Returns the search space of the overrides, and those with a single value as written."""
    space, fixed = {}, []
    for override in OverridesParser.create().parse_overrides(list(lines)):
        if override.is_sweep_override():
            try:
                space[override.get_key_element()] = _parse_distribution(override)
            except ValueError as error:
                raise ConfigError(f"{override.input_line}: {error}") from None
        else:
            fixed.append(str(override.input_line))
    return space, fixed


def _parse_distribution(override: Override) -> Distribution:
    value: Any = override.value()
    tags = getattr(value, "tags", set())
    if getattr(value, "shuffle", False):
        raise ValueError("shuffle is not supported, as the sampler decides the order")
    if unknown := tags - {"log"}:
        raise ValueError(f"the only tag is log, not {', '.join(sorted(unknown))}")
    if isinstance(value, ChoiceSweep):
        values = [_parse_scalar(item) for item in value.list]
        if tags or len({*map(format_value, values)}) < len(values):
            raise ValueError("a choice has no tags, and each of its values once")
        return CategoricalDistribution(values)
    if not isinstance(value, RangeSweep | IntervalSweep):
        raise ValueError("give choice(...), range(...) or interval(...)")
    low, log = value.start, "log" in tags
    high, step = (value.stop, value.step) if isinstance(value, RangeSweep) else (value.end, None)
    assert low is not None and high is not None
    step = None if log and step == 1 else step
    if isinstance(low, int) and isinstance(high, int) and isinstance(step, int | None):
        return IntDistribution(low, high, log=log, step=step or 1)
    return FloatDistribution(low, high, log=log, step=step)


def _parse_scalar(item: Any) -> Scalar:
    """A value that a study can store. Lists and groups of settings become text."""
    if isinstance(item, QuotedString):
        return item.text
    if item is None or isinstance(item, bool | int | float | str):
        return item
    return Override._get_value_element_as_str(item)


def format_value(value: Any) -> str:
    """A value as it is written on the command line, without quotes."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) \
        else str(value)  # fmt: skip


def format_overrides(params: Params) -> list[str]:
    """Parameters as overrides."""
    texts = {name: format_value(value) for name, value in params.items()}
    return [
        f"{name}={text}" if _PLAIN.fullmatch(text) else f"{name}={quote(text)}"
        for name, text in texts.items()
    ]


def quote(text: str) -> str:
    """Any text as a value on the command line, such as a path."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def format_params(params: Params) -> str:
    """Parameters in one line for people: the last part of each name, and short numbers."""
    return " ".join(
        f"{name.rpartition('.')[2]}={value:.4g}"
        if isinstance(value, float)
        else f"{name.rpartition('.')[2]}={value}"
        for name, value in params.items()
    )


def format_distribution(item: Distribution) -> str:
    """A distribution in the grammar that parse_params reads."""
    if isinstance(item, CategoricalDistribution):
        return f"choice({', '.join(map(str, item.choices))})"
    if item.log or item.step is None:
        inner = f"interval({item.low}, {item.high})"
        inner = f"int({inner})" if isinstance(item, IntDistribution) else inner
        return f"tag(log, {inner})" if item.log else inner
    return f"range({item.low}, {item.high}, step={item.step})"


def same_params(one: Params, other: Params) -> bool:
    """Whether a config treats two sets of parameters alike: 1 equals 1.0, but not true."""
    return one.keys() == other.keys() and all(
        one[k] == other[k] and isinstance(one[k], bool) == isinstance(other[k], bool) for k in one
    )


def read_value(item: Distribution, text: str) -> Scalar:
    """The value that str() made a text of; None was empty. Raises ValueError."""
    if isinstance(item, CategoricalDistribution):
        known = {"" if value is None else str(value): value for value in item.choices}
        if text not in known:
            raise ValueError(f"{text!r} is not one of {', '.join(known)}")
        return known[text]
    return int(text) if isinstance(item, IntDistribution) else float(text)


def list_values(item: Distribution) -> list[Scalar]:
    """The values of a choice or of a range with a step. Raises ValueError for others."""
    if isinstance(item, CategoricalDistribution):
        return list(item.choices)
    if item.log or item.step is None:
        raise ValueError(f"a grid needs lists of values, not {format_distribution(item)}")
    count = math.floor((item.high - item.low) / item.step + 1e-9) + 1
    values = (item.low + i * item.step for i in range(count))
    # Rounding makes 0.1 + 2 * 0.1 equal 0.3.
    return [v if isinstance(item, IntDistribution) else round(v, 12) for v in values]


def list_grid_points(space: Space) -> list[dict[str, Scalar]]:
    """Every combination. The seed changes slowest, so that each arm is tried once early on."""
    names = sorted(space, key=lambda name: name != "seed")
    points = itertools.product(*(list_values(space[name]) for name in names))
    return [dict(zip(names, point, strict=True)) for point in points]


def list_probes(space: Space) -> list[dict[str, Scalar]]:
    """A few points that together contain every listed value and both ends of every range.

    They are enough to check a space. All have the same seed.
    """
    ends = {
        name: list(item.choices) if isinstance(item, CategoricalDistribution)
        else [item.low, item.high]
        for name, item in space.items()
    }  # fmt: skip
    first = {name: values[0] for name, values in ends.items()}
    others = [(n, v) for n, values in ends.items() for v in values[1:] if n != "seed"]
    return [first, *({**first, name: value} for name, value in others)]
