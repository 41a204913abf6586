"""The memory guard: what it measures, when it acts, and that a run keeps its numbers."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.helpers.commands import error_of
from tests.helpers.runs import assert_equal_runs, metrics_of, resume, run, settings
from wordle_rl.runs.paths import ROOT, TRAIN
from wordle_rl.training import loop as memory
from wordle_rl.training.loop import RESIDENT

pytestmark = pytest.mark.usefixtures("quiet")


def test_a_run_that_leaks_saves_and_stops_and_goes_on_with_the_same_numbers(
    tmp_path, root, monkeypatch, capsys
):
    overrides = [*settings(tmp_path, "sft"), "trainer.steps=4"]
    _, reference = run(root, *overrides)
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        count = itertools.count(1)  # as if each step kept 0.1 GB
        patch.setattr(memory, "resident_bytes", lambda: next(count) * 100_000_000)
        run(root, *overrides, "trainer.memory_limit_gb=0.15")
    [folder] = set(root.iterdir()) - {reference}
    line = error_of(capsys.readouterr().err)
    assert end.value.code == 1 and "0.20 GB are in use, more than trainer.memory_limit_gb" in line
    assert f"the run is saved, continue with {TRAIN} resume={folder}" in line
    assert [m["step"] for m in metrics_of(folder)] == [0, 1, 2]
    resume(folder, "trainer.memory_limit_gb=9")
    assert_equal_runs(folder, reference)


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
    overrides = [
        "experiment=none",
        "model=micro",
        "rollout.groups=4",
        "num_generations=4",
        "words.test=20",
        "words.val=6",
        "backend.threads=1",
        "trainer.report=false",
        "trainer.steps=250",
        "logger=none",
        "trainer.validate_every=50",
        "trainer.checkpoint_every=50",
        "trainer.show_games=0",
        f"output_dir={tmp_path / 'out'}",
    ]
    subprocess.run(
        [sys.executable, str(script), *overrides],
        cwd=ROOT,
        check=True,
        capture_output=True,
        # oneDNN caches prepared products, and so does torch: hundreds of MB by default.
        env={**os.environ, "PYTHONPATH": str(ROOT), **dict.fromkeys(CACHES, "8")},
    )
    [folder] = (tmp_path / "out").iterdir()
    sizes = [1e3 * m[RESIDENT] for m in metrics_of(folder)[1:]]  # MB
    # The allocator takes some hundred steps of games of all lengths to find its size.
    assert min(sizes[-25:]) - min(sizes[125:150]) < 20.0, sizes[::25]
