"""Short names of runs say what differs from the default, and nothing else."""

from __future__ import annotations

from wordle_rl.runs.labels import label_run, list_changes, tell_apart

MANIFEST = {
    "command": [
        "train.py", "model=mini", "optim.lr=1e-4", "seed=1", "output_dir='x'", "--cfg",
        "trainer.show_games=0", "init_from=outputs/2026_demo_1", "hydra.verbose=true",
    ],
    "choices": {"model": "mini"},
}  # fmt: skip


def test_a_name_has_the_model_and_the_changes():
    assert label_run(MANIFEST) == "mini, lr=1e-4 seed=1 init_from=2026_demo_1"


def test_an_experiment_is_named_first_and_without_its_key():
    command = ["train.py", "seed=2", "experiment=demo"]
    assert label_run({**MANIFEST, "command": command}) == "mini, demo seed=2"


def test_a_run_with_defaults_is_named_by_its_model():
    assert label_run({"model": "embedded/tiny", "command": ["train.py"]}) == "tiny"


def test_changes_of_a_resume_come_last():
    resumed = {**MANIFEST, "resumes": [{"changes": {"optim.lr": [1e-4, 2e-5]}}]}
    assert list_changes(resumed)["optim.lr"] == "2e-05"
    assert label_run(resumed) == label_run(MANIFEST)
    assert list_changes(MANIFEST) == {
        "optim.lr": "1e-4", "seed": "1", "init_from": "outputs/2026_demo_1",
    }  # fmt: skip


def test_a_long_name_is_cut():
    command = ["train.py", *(f"group{i}.setting=value{i}" for i in range(20))]
    assert len(label_run({**MANIFEST, "command": command})) < 90


def test_runs_are_told_apart_by_what_differs_alone():
    commands = (
        ["experiment=quick", "seed=0"],
        ["seed=1", "experiment=quick"],
        ["experiment=quick"],
    )
    manifests = [{"model": "mini", "command": ["train.py", *words]} for words in commands]
    assert tell_apart(manifests) == ["seed=0", "seed=1", ""]
    other = {"model": "mini", "choices": {"model": "tiny"}, "command": ["train.py", "optim.lr=1"]}
    assert tell_apart([manifests[0], other]) == [
        "model=mini experiment=quick seed=0",
        "model=tiny lr=1",
    ]
