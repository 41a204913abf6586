"""TensorBoard gets the curves that show something, with nothing left out of them."""

from __future__ import annotations

from wordle_rl.training.cards import Cards


def written(values: list[float], *, name: str = "a", flat: tuple[str, ...] = ()):
    cards = Cards(flat)
    return [
        point for step, value in enumerate(values) for _, point in cards.add(step, {name: value})
    ]


def test_a_curve_that_is_always_the_same_is_not_written():
    assert written([0.0] * 9) == written([4.0] * 9) == written([3.0]) == []


def test_the_first_points_follow_when_a_curve_changes():
    assert written([1.0, 2.0, 2.0]) == [(0, 1.0), (1, 2.0), (2, 2.0)]
    # The ends of a level stretch draw it as well as all of its points would.
    assert written([0.0, 0.0, 0.0, 5.0, 0.0]) == [(0, 0.0), (2, 0.0), (3, 5.0), (4, 0.0)]


def test_a_flat_name_needs_two_points():
    assert written([0.0, 0.0, 0.0], flat=("a",)) == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert written([0.0], flat=("a",)) == []


def test_curves_are_apart_and_points_are_in_order():
    cards = Cards()
    cards.add(0, {"a": 0.0, "b": 1.0})
    cards.add(3, {"a": 0.0})
    assert cards.add(4, {"a": 1.0, "b": 2.0}) == [
        ("a", (0, 0.0)), ("b", (0, 1.0)), ("a", (3, 0.0)), ("a", (4, 1.0)), ("b", (4, 2.0)),
    ]  # fmt: skip
