"""Chooses the curves that TensorBoard gets: the ones that show something.

TensorBoard makes a card of every name, also of a curve that is 0 from end to end or has one point.
Here a curve waits until it has two different values. Then its first points follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

Point = tuple[int, float]  # step and value


class Cards:
    """Curves that wait, and curves that are shown. flat: names that need only two points."""

    def __init__(self, flat: Collection[str] = ()) -> None:
        self._flat = frozenset(flat)
        self._shown: set[str] = set()
        self._waiting: dict[str, list[Point]] = {}  # the first point and the newest equal one

    def add(self, step: int, values: Mapping[str, float]) -> list[tuple[str, Point]]:
        """Add the values of a step. Returns the points to write now, oldest first."""
        due = []
        for name, value in values.items():
            if name not in self._shown:
                due += [(name, point) for point in self._wake(name, step, value)]
            else:
                due.append((name, (step, value)))
        return sorted(due, key=lambda entry: entry[1][0])

    def _wake(self, name: str, step: int, value: float) -> list[Point]:
        """The points of a waiting curve that is shown from now on; none if it waits on."""
        points = self._waiting.setdefault(name, [])
        if points and (value != points[0][1] or name in self._flat):
            self._shown.add(name)
            return [*self._waiting.pop(name), (step, value)]
        self._waiting[name] = [*points[:1], (step, value)]
        return []
