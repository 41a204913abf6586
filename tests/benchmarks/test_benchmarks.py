"""How the benchmarks take turns. `.ci/run` runs the scripts themselves."""

from benchmarks import _timing as timing


def test_runs_take_turns_and_every_other_repeat_goes_backwards():
    calls: list[tuple[str, int]] = []
    runs = {name: lambda step, name=name: calls.append((name, step)) for name in "abc"}
    taken = timing.alternate(runs, 3)
    assert "".join(name for name, _ in calls) == "abc" + "cba" + "abc"
    assert [step for _, step in calls] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3, "c": 3}


def test_speedup_compares_each_repeat_with_itself():
    # In a repeat where the machine runs at half speed, both are slow.
    assert timing.speedup([1.0, 2.0, 1.0], [4.0, 8.0, 5.0]) == [4.0, 4.0, 5.0]
    assert timing.spread([4.0, 4.0, 5.0]) == "4.00 (4.00 to 5.00)"
