"""Search spaces: the values that a study may try. Samplers choose among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

Scalar = None | bool | int | float | str
Params = Mapping[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A list of values."""

    values: tuple[Scalar, ...]
    texts: tuple[str, ...]  # each value as it is written on the command line

    def __post_init__(self) -> None:
        if len(set(self.texts)) < len(self.texts) or not self.texts:
            raise ValueError(f"a choice must have values, each of them once, not {self}")

    def text(self, value: Scalar) -> str:
        # An index would confuse 1 with True, which Python calls equal.
        [text] = {t for v, t in zip(self.values, self.texts, strict=True) if is_same(v, value)}
        return text

    def listed(self) -> tuple[Scalar, ...]:
        return self.values

    def edges(self) -> tuple[Scalar, ...]:
        return self.values

    def __str__(self) -> str:
        return f"choice({', '.join(self.texts)})"


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from low to high, both included. With a step it is a list of values."""

    low: int | float
    high: int | float
    step: int | float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"the lower end must be below the upper one, not {self}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range must be above 0, not {self}")
        if self.log and self.step not in (None, 1):
            raise ValueError(f"a logarithmic range has no step, not {self}")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"a step must be above 0, not {self}")

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int)

    def text(self, value: Scalar) -> str:
        return repr(value)

    def listed(self) -> tuple[Scalar, ...]:
        if self.step is None:
            raise ValueError(f"a grid needs lists of values, not {self}")
        count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
        # Rounding makes 0.1 + 2 * 0.1 equal 0.3.
        values = (self.low + i * self.step for i in range(count))
        return tuple(v if self.whole else round(v, 12) for v in values)

    def edges(self) -> tuple[Scalar, ...]:
        return self.low, self.high

    def __str__(self) -> str:
        step = "" if self.step is None else f", step={self.step}"
        inner = f"{'interval' if self.step is None else 'range'}({self.low}, {self.high}{step})"
        return f"tag(log, {inner})" if self.log else inner


Space = Mapping[str, Choice | Range]


def is_same(one: Scalar, other: Scalar) -> bool:
    """Whether a config treats two values alike: 1 equals 1.0, but not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def same_params(one: Params, other: Params) -> bool:
    """Whether two sets of parameters have the same names and values."""
    return one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)


def list_grid_points(space: Space) -> list[dict[str, Scalar]]:
    """Every combination. The seed changes slowest, so that each arm is tried once early on."""
    names = sorted(space, key=lambda name: name != "seed")
    values = itertools.product(*(space[name].listed() for name in names))
    return [dict(zip(names, point, strict=True)) for point in values]


def list_probes(space: Space) -> list[dict[str, Scalar]]:
    """A few points that together contain every listed value and both ends of every range.

    They are enough to check a space. All have the same seed.
    """
    edges = {name: item.edges()[: 1 if name == "seed" else None] for name, item in space.items()}
    first = {name: values[0] for name, values in edges.items()}
    others = [{**first, name: v} for name, values in edges.items() for v in values[1:]]
    return [first, *others]


def format_overrides(space: Space, params: Params) -> dict[str, str]:
    """The value of each parameter as it is written on the command line."""
    return {name: space[name].text(value) for name, value in params.items()}


def format_params(params: Params) -> str:
    """Parameters in one line for people: the last part of each name, and short numbers."""
    return " ".join(
        f"{name.rpartition('.')[2]}={value:.4g}"
        if isinstance(value, float)
        else f"{name.rpartition('.')[2]}={value}"
        for name, value in params.items()
    )
