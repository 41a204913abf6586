"""Which run `latest` means, and how a run is called."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from wordle_rl.runs.config import expand
from wordle_rl.runs.files import FolderError, write_json
from wordle_rl.runs.folder import UNFINISHED, RunFolder, find_run, given_name, label_run
from wordle_rl.runs.instantiate import ConfigError


def make_run(root: Path, name: str, minute: int, status: str = "finished", **entries) -> RunFolder:
    stamp = datetime(2026, 1, 1, 12, minute, tzinfo=UTC).isoformat()
    folder = RunFolder.create(root, name)
    write_json(
        folder.path / "manifest.json",
        {"started": stamp, "status": status, "choices": {"model": "tiny", "reward": "phase2"}}
        | entries,
    )
    return folder


@pytest.fixture
def outputs(tmp_path):
    """Three runs, the newest first in the alphabet, and a folder that is no run."""
    root = tmp_path / "outputs"
    make_run(root, "old", 1)
    (make_run(root, "stopped", 2, "interrupted").path / "metrics.jsonl").touch()  # has results
    make_run(root, "a_new", 3)
    (root / "eval").mkdir()
    return root


def test_the_latest_run_is_the_newest_of_its_kind_that_can_be_read(outputs):
    for text in "{", "[]", '{"status": "finished", "started": "soon"}', '{"status": 3}':
        (make_run(outputs, "broken", 9).path / "manifest.json").write_text(text)
    for statuses, name in ((), "stopped"), (("finished",), "a_new"), (UNFINISHED, "stopped"):
        run = find_run("latest", "run", *statuses, outputs=outputs)
        assert given_name(run.path.name) == name
    for number, name in ("1", "old"), ("2", "stopped"), ("3", "a_new"):  # as they began
        assert given_name(find_run(number, outputs=outputs).path.name) == name
    with pytest.raises(ConfigError, match=r"resume=4: .*outputs has the runs 1 to 3"):
        find_run("4", "resume", outputs=outputs)
    with pytest.raises(ConfigError, match=r"init_from=latest: .*outputs has no run that is failed"):
        find_run("latest", "init_from", "failed", outputs=outputs)
    with pytest.raises(ConfigError, match=r"run=latest: .*nowhere has no run$"):
        find_run("latest", outputs=outputs / "nowhere")
    with pytest.raises(ConfigError, match="output_dir=/proc/nope: "):
        RunFolder.create("/proc/nope", "name")


def test_a_run_of_debug_true_is_the_latest_only_where_there_is_no_other(outputs, tmp_path):
    for root, name in (outputs, "stopped"), (tmp_path / "alone", "tried"):
        make_run(root, "tried", 50, command=["train.py", *expand(["debug=true", "model=tiny"])])
        assert given_name(find_run("latest", outputs=root).path.name) == name


def test_a_mistyped_run_is_proposed(outputs):
    name = next(outputs.glob("*stopped")).name
    for word, hint in ("latst", "latest"), (f"{name}ed", name):
        with pytest.raises(FolderError, match=rf"did you mean (.*/)?{hint}\?"):
            find_run(word, outputs=outputs)


def test_a_label_has_the_model_the_experiment_and_the_changes():
    command = ["train.py", "model=mini", "optim.lr=1e-4", "seed=1", "output_dir='x'", "--cfg"]
    manifest = {"command": [*command, "experiment=demo"], "choices": {"model": "mini"}}
    assert label_run(manifest) == "mini, demo lr=1e-4 seed=1"
    assert label_run({"model": "embedded/tiny", "command": ["train.py"]}) == "tiny"
