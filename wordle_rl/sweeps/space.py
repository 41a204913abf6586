"""Search spaces in the grammar of Hydra's Optuna sweeper, read into Optuna's distributions.

choice, range, interval, int and tag(log, ...) are known. range(1, 4) includes 4, and an interval
between whole numbers gives whole numbers. shuffle and glob are not supported.
"""

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
from wordle_rl.runs.paths import quote

ARM = "arm"  # the parameter whose values are the names of hydra.sweeper.arms
Scalar = None | bool | int | float | str
Params = Mapping[str, Scalar]
Distribution = CategoricalDistribution | IntDistribution | FloatDistribution
Space = Mapping[str, Distribution]
_PLAIN_TEXT = re.compile(r"[\w./:+-]+|[\[{].*[\]}]")  # needs no quotes on the command line


def parse_params(params: Mapping[str, Any]) -> tuple[dict[str, Distribution], list[str]]:
    """Returns the search space, and an override for each entry that has a single value."""
    return parse_overrides([f"{key}={_format_value(value)}" for key, value in params.items()])


def key_of(override: str) -> str:
    """The setting that an override sets, under one name however it is written."""
    key = override.partition("=")[0].lstrip("+~")
    return "num_generations" if key == "rollout.num_generations" else key


def parse_overrides(lines: Sequence[str]) -> tuple[dict[str, Distribution], list[str]]:
    """Returns the search space of the overrides, and those with a single value as written."""
    space, constants = {}, []
    keys = [key_of(line) for line in lines]
    for override, key in zip(OverridesParser.create().parse_overrides([*lines]), keys, strict=True):
        if override.is_sweep_override():
            if keys.count(key) > 1:
                raise ConfigError(f"{override.input_line}: {key} is given {keys.count(key)} times")
            try:
                space[override.get_key_element()] = _parse_distribution(override)
            except ValueError as error:
                raise ConfigError(f"{override.input_line}: {error}") from None
        else:
            constants.append(str(override.input_line))
    return space, constants


def _parse_distribution(override: Override) -> Distribution:
    value: Any = override.value()
    tags = getattr(value, "tags", set())
    known = isinstance(value, ChoiceSweep | RangeSweep | IntervalSweep)
    if not known or getattr(value, "shuffle", False):
        raise ValueError("give choice(...), range(...) or interval(...); shuffle is not supported")
    if isinstance(value, ChoiceSweep):
        values = [_parse_scalar(item) for item in value.list]
        if tags or len({*map(_format_value, values)}) < len(values):
            raise ValueError("a choice has no tags, and each of its values once")
        return CategoricalDistribution(values)
    if tags - {"log"}:
        raise ValueError(f"the only tag is log, not {', '.join(sorted(tags))}")
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


def _format_value(value: Any) -> str:
    """A value as it is written on the command line, without quotes."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def format_overrides(params: Params) -> list[str]:
    """Parameters as overrides."""
    texts = {name: _format_value(value) for name, value in params.items()}
    return [f"{n}={t if _PLAIN_TEXT.fullmatch(t) else quote(t)}" for n, t in texts.items()]


def format_params(params: Params, space: Space) -> str:
    """Parameters in one line: the last part of each name, and numbers of an interval in short."""
    texts = []
    for name, value in params.items():
        if isinstance(value, float):
            item, text = space.get(name), f"{value:.4g}"
            rounded = isinstance(item, FloatDistribution) and item.step is None
            value = text if rounded or float(text) == value else repr(value)
        texts.append(f"{name.rpartition('.')[2]}={value}")
    return " ".join(texts)


def name_arm(params: Params, space: Space) -> str:
    """What a trial shares with those of other seeds: the name of its arm, or its parameters."""
    arm = {name: params[name] for name in space if name != "seed" and name in params}
    return str(arm[ARM]) if [*arm] == [ARM] else format_params(arm, space) or "all"


def count_points(space: Space) -> int | None:
    """How many points a space has; None if an interval of it has any number of them."""
    values = [_list_values(item) for item in space.values()]
    return None if None in values else math.prod(map(len, values))


def list_grid_points(space: Space) -> list[dict[str, Scalar]]:
    """Every combination. The seed changes slowest, so that each arm is tried once early on."""
    names = sorted(space, key=lambda name: name != "seed")
    values = [_list_values(space[name]) for name in names]
    if None in values:
        raise ConfigError("hydra.sweeper.params: a grid needs lists of values, not an interval")
    return [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]


def _list_values(item: Distribution) -> Any:
    """The values of a parameter; None for an interval, which has any number of them."""
    if isinstance(item, CategoricalDistribution):
        return list(item.choices)
    if item.log or item.step is None:
        return None
    count = round((item.high - item.low) / item.step) + 1
    # Rounding makes 0.1 + 2 * 0.1 equal 0.3.
    return [round(item.low + i * item.step, 12) for i in range(count)]


def list_probes(space: Space) -> list[dict[str, Scalar]]:
    """A few points with every listed value and both ends of every range. All have one seed."""
    ends = {
        name: list(item.choices)
        if isinstance(item, CategoricalDistribution)
        else [item.low, item.high]
        for name, item in space.items()
    }
    base = {name: values[0] for name, values in ends.items()}
    pairs = [(n, v) for n, values in ends.items() for v in values[1:] if n != "seed"]
    return [base, *({**base, name: value} for name, value in pairs)]
