"""How the benchmarks take turns. `.ci/run` runs the scripts themselves."""

import importlib.util
import re
import subprocess
import sys

import pytest

from benchmarks import _timing as timing
from wordle_rl.runs.paths import ROOT


def test_runs_take_turns_and_every_other_repeat_goes_backwards():
    calls: list[tuple[str, int]] = []
    runs = {name: lambda step, name=name: calls.append((name, step)) for name in "abc"}
    times = timing.alternate(runs, 3)
    assert "".join(name for name, _ in calls) == "abc" + "cba" + "abc"
    assert [step for _, step in calls] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_speedup_compares_each_repeat_with_itself():
    # In a repeat where the machine runs at half speed, both are slow.
    assert timing.speedup([1.0, 2.0, 1.0], [4.0, 8.0, 5.0]) == [4.0, 4.0, 5.0]
    assert timing.spread([4.0, 4.0, 5.0]) == "4.00 (4.00 to 5.00)"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="no MLX")
def test_torch_and_mlx_do_the_same_work_in_one_run():
    command = [sys.executable, "benchmarks/backends.py", "--smoke"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    head, torch, mlx, ratio = result.stdout.splitlines()
    assert re.match(r"torch \S+ on \w+, mlx \S+ on \w+, \d+ CPU threads each; model=micro", head)
    work = [line.partition(" s a step, ")[2] for line in (torch, mlx)]
    assert work[0] == work[1] != "", "the same games up to rounding"
    assert re.fullmatch(r"mlx over torch: \d+\.\d\d \(.*\)", ratio)
