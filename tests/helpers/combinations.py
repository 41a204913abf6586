"""Rows of options in which every pair that is possible occurs: a covering array, greedily made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

Row = dict[str, str]  # an option for each factor
Pair = tuple[tuple[str, str], tuple[str, str]]  # two options of two factors, in order of factors


def anything(row: Row) -> bool:
    return True


def pairs_of(row: Mapping[str, str]) -> Iterator[Pair]:
    yield from combinations(row.items(), 2)


class Covering:
    """rows: each is accepted and holds a pair that no earlier one has. refused: the pairs that no
    row near the defaults can have, each with such a row; the defaults are the first options.

    accepts: whether an option of each factor goes together; the defaults must.
    """

    def __init__(
        self, factors: Mapping[str, Iterable[str]], accepts: Callable[[Row], bool] = anything
    ) -> None:
        self._factors = {factor: list(options) for factor, options in factors.items()}
        self._accepts = accepts
        self._defaults = {f: options[0] for f, options in self._factors.items()}
        self._changes: dict[tuple[str, str], Row] = {}
        self._order = sorted(self._factors, key=lambda factor: -len(self._factors[factor]))
        self.rows: list[Row] = []
        self.refused: dict[Pair, Row] = {}
        self._left = dict.fromkeys(
            ((one, a), (other, b))
            for one, other in combinations(self._factors, 2)
            for a in self._factors[one]
            for b in self._factors[other]
        )
        assert accepts(self._defaults)
        while self._left:
            pair = next(iter(self._left))
            near = self._near(pair)
            begin = next(filter(accepts, near), None)
            if begin is not None:
                self.rows.append(self._grown(begin, pair))
                for covered in pairs_of(self.rows[-1]):
                    self._left.pop(covered, None)
            else:
                self.refused[pair] = near[0]
                del self._left[pair]

    def _near(self, wanted: Sequence[tuple[str, str]]) -> list[Row]:
        """Rows with these options and else the defaults, but for what one of them cannot be with.

        An option that the defaults refuse brings a change along; then all others are tried, too.
        """
        brought = [f for option in wanted for f in self._alone(*option)]
        base = self._defaults
        for option in wanted:
            base = base | self._alone(*option)
        changes = [{f: option} for f in brought for option in self._factors[f]]
        return [base | change | dict(wanted) for change in ({}, *changes)]

    def _alone(self, factor: str, option: str) -> Row:
        """What must change for the defaults to go with an option: nothing or one factor, if any."""
        if (factor, option) not in self._changes:
            others = [{f: o} for f, options in self._factors.items() for o in options]
            rows = ((change, self._defaults | change | {factor: option}) for change in others)
            if self._accepts(self._defaults | {factor: option}):
                change = {}
            else:
                change = next((change for change, row in rows if self._accepts(row)), {})
            self._changes[factor, option] = change
        return self._changes[factor, option]

    def _grown(self, row: Row, pair: Pair) -> Row:
        """The row with as many new pairs as one can choose, one factor after the other."""
        chosen = dict(pair)
        for factor in self._order:
            if factor in chosen:
                continue
            options = self._factors[factor]
            gains = {option: self._gain(chosen, factor, option) for option in options}
            # What gains nothing stays as it is.
            for option in sorted(options, key=lambda o: (-gains[o], o != row[factor])):
                changed = row | {factor: option}
                if option == row[factor] or self._possible(changed):
                    row = changed
                    break
            chosen[factor] = row[factor]
        return row

    def _gain(self, chosen: Row, factor: str, option: str) -> int:
        given = {f: chosen.get(f, option) for f in self._factors if f in chosen or f == factor}
        return sum(
            pair in self._left for pair in pairs_of(given) if factor in (pair[0][0], pair[1][0])
        )

    def _possible(self, row: Row) -> bool:
        return self.refused.keys().isdisjoint(pairs_of(row)) and self._accepts(row)
