"""The memory guard: what it measures, when it acts, and that a run keeps its numbers."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

import pytest

from tests.helpers.configs import composed
from tests.helpers.runs import assert_equal_runs, metrics_of, resume, run, settings
from wordle_rl.commands import train as running
from wordle_rl.runs.paths import ROOT
from wordle_rl.training import loop as memory
from wordle_rl.training.loop import RESIDENT

pytestmark = pytest.mark.usefixtures("quiet")


class Replaced(BaseException):
    """In the place of a process that was replaced by another one."""

    def __init__(self, overrides: Sequence[str]) -> None:
        self.overrides = overrides


def leak(patch: pytest.MonkeyPatch) -> None:
    """As if each step of this process kept 0.1 GB."""
    count = itertools.count(1)
    patch.setattr(memory, "resident_bytes", lambda: next(count) * 100_000_000)


@pytest.mark.slow
def test_a_run_that_leaks_goes_on_afresh_with_the_same_numbers(tmp_path, root, monkeypatch):
    given = [*settings(tmp_path, "sft"), "trainer.steps=9"]
    _, unbroken = run(root, *given)

    def replaced(overrides: Sequence[str]) -> NoReturn:
        raise Replaced(overrides)

    monkeypatch.setattr(running, "start_afresh", replaced)
    leak(monkeypatch)
    with pytest.raises(Replaced) as first:
        run(root, *given, "trainer.memory_limit_gb=0.35")
    [folder] = set(root.iterdir()) - {unbroken}
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2, 3, 4]
    [overrides] = first.value.overrides
    # a run that was resumed is resumed in the same way, with what was changed then
    changed = ["trainer.memory_limit_gb=0.25"]
    leak(monkeypatch)
    with pytest.raises(Replaced) as second:
        running.train(composed(overrides, *changed), [overrides, *changed])
    assert second.value.overrides == [overrides, *changed]
    assert metrics_of(folder)[-1]["step"] == 7
    leak(monkeypatch)
    resume(folder)
    assert len(json.loads((folder / "manifest.json").read_text())["resumes"]) == 2
    assert_equal_runs(folder, unbroken)


def test_a_run_above_its_limit_from_the_start_stops_in_one_line_and_can_go_on(
    tmp_path, root, monkeypatch, capsys
):
    given = [*settings(tmp_path, "sft"), "trainer.steps=2"]
    leak(monkeypatch)
    monkeypatch.setattr(running, "start_afresh", lambda _: pytest.fail("it would go on for ever"))
    with pytest.raises(SystemExit) as end:
        run(root, *given, "trainer.memory_limit_gb=0.05")
    [folder] = root.iterdir()
    [line] = capsys.readouterr().err.strip().splitlines()
    assert (
        end.value.code == 2 and "0.10 GB are in use, more than trainer.memory_limit_gb=0.05" in line
    )
    assert f"resume={folder}" in line
    assert json.loads((folder / "manifest.json").read_text())["status"] == "failed"
    resume(folder, "trainer.memory_limit_gb=9")
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2]


# -- real processes -------------------------------------------------------------------------------


CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
FULL_CACHES = """
import runpy
from wordle_rl.game import knowledge
knowledge._MASKS_KEPT = knowledge._ALLOWED_KEPT = knowledge._BESTS_KEPT = 256
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_of_an_embedded_model_does_not_grow_once_its_caches_are_full(tmp_path):  # row 25
    script = tmp_path / "full_caches.py"
    script.write_text(FULL_CACHES)
    given = [
        "experiment=none", "model=micro", "rollout.groups=4", "num_generations=4",
        "words.test=20", "words.val=6", "backend.threads=1", "trainer.report=false",
        "trainer.steps=250", "logger=none", "trainer.validate_every=50",
        "trainer.checkpoint_every=50", "trainer.show_games=0",
        f"output_dir={tmp_path / 'out'}",
    ]  # fmt: skip
    subprocess.run(
        [sys.executable, str(script), *given], cwd=ROOT, check=True, capture_output=True,
        # oneDNN caches prepared products, and so does torch: hundreds of MB by default.
        env={**os.environ, "PYTHONPATH": str(ROOT), **dict.fromkeys(CACHES, "8")},
    )  # fmt: skip
    [folder] = (tmp_path / "out").iterdir()
    resident = [1e3 * m[RESIDENT] for m in metrics_of(folder)[1:]]  # MB
    # The allocator takes some hundred steps of games of all lengths to find its size.
    assert min(resident[-25:]) - min(resident[125:150]) < 20.0, resident[::25]
