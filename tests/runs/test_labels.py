"""Short names of runs say what differs from the default, and nothing else."""

from __future__ import annotations

import pytest

from wordle_rl.runs.labels import label_run

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
