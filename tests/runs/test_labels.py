"""Short names of runs say what differs from the default, and nothing else."""

from __future__ import annotations

import pytest

from wordle_rl.runs.labels import label_run, list_changes

MANIFEST = {
    "command": [
        "train.py", "model=mini", "optim.lr=1e-4", "seed=1", "output_dir='x'", "--cfg",
        "trainer.show_games=0", "init_from=outputs/2026_demo_1", "hydra.verbose=true",
    ],
    "choices": {"model": "mini"},
}  # fmt: skip
LONG = f"group.setting={'a' * 99}"


@pytest.mark.parametrize(
    ("manifest", "label"),
    [
        (MANIFEST, "mini, lr=1e-4 seed=1 init_from=2026_demo_1"),
        ({**MANIFEST, "command": ["train.py", "seed=2", "experiment=demo"]}, "mini, demo seed=2"),
        ({"model": "embedded/tiny", "command": ["train.py"]}, "tiny"),
        ({**MANIFEST, "command": ["train.py", LONG]}, f"mini, setting={'a' * 49}..."),
    ],
)  # fmt: skip
def test_a_name_has_the_model_the_experiment_and_the_changes(manifest, label):
    assert label_run(manifest) == label


def test_changes_of_a_resume_come_last_and_leave_the_name():
    resumed = {**MANIFEST, "resumes": [{"changes": {"optim.lr": [1e-4, 2e-5]}}]}
    assert list_changes(resumed)["optim.lr"] == "2e-05"
    assert label_run(resumed) == label_run(MANIFEST)
    assert list_changes(MANIFEST) == {
        "optim.lr": "1e-4", "seed": "1", "init_from": "outputs/2026_demo_1",
    }  # fmt: skip
