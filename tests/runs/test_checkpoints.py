"""Checkpoints that are kept, found again, and notice damage."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.helpers.checkpoints import newest, steps, write
from wordle_rl.runs.checkpoints import CheckpointStore
from wordle_rl.runs.files import FolderError


def test_what_was_saved_is_found_and_verified(store, tmp_path):
    assert store.load_latest() is store.latest() is store.best() is None
    assert CheckpointStore(tmp_path / "nowhere", read_only=True).load_latest() is None
    path = store.save(123, write("a"))
    assert path == store.folder / "step_000123" == store.latest()
    assert store.load_latest() == store.verify(path)
    assert newest(store) == (123, "a")
    record = json.loads((path / "checkpoint.json").read_text())
    assert record["files"]["adapter/weights.bin"]["bytes"] == 1000
    digest = subprocess.run(["sha256sum", path / "state.json"], capture_output=True, text=True)
    assert record["files"]["state.json"]["sha256"] == digest.stdout.split()[0]


def test_the_two_newest_and_the_best_are_kept(store):
    store.save(1, write("a"))
    store.mark_best(1)
    for step in (2, 3, 4):
        store.save(step, write("a"))
    assert steps(store) == ["step_000001", "step_000003", "step_000004"]
    store.mark_best(4)
    assert steps(store) == ["step_000003", "step_000004"]
    assert store.best() == store.latest() == store.folder / "step_000004"
    with pytest.raises(FolderError, match="step_000002"):
        store.mark_best(2)
    with pytest.raises(FolderError, match="give model="):
        store.load_named("start", "")
    for step in (999_999, 1_000_000, 1_000_001):  # beyond six digits
        store.save(step, write("a"))
    assert newest(store)[0] == 1_000_001


def test_as_many_of_the_newest_are_kept_as_one_asks_for(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    for step in range(1, 8):
        store.save(step, write("a"))
        if step == 2:
            store.mark_best(2)
    assert steps(store) == [f"step_00000{step}" for step in (2, 5, 6, 7)]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize("name", ["adapter/weights.bin", "state.json", "checkpoint.json"])
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_damaged_file_is_named_and_the_one_before_is_loaded(store, name, damage):
    store.save(1, write("a"))
    damage(store.save(2, write("b")) / name)
    store.mark_best(2)
    # damage to the list may show as a file that is not as listed
    file = "step_000002" if name == "checkpoint.json" else f"step_000002/{name}"
    with pytest.raises(FolderError, match=file) as error:
        store.verify(store.folder / "step_000002")
    assert "\n" not in str(error.value)
    for load in store.load_latest, store.load_best:
        with pytest.warns(UserWarning, match=file):
            assert load() == store.folder / "step_000001"
    with pytest.raises(FolderError, match=file):  # and no other one in its place
        store.load_named("best", "init_checkpoint=")
    damage(store.folder / "step_000001" / name)
    with pytest.raises(FolderError, match=rf"{file}.*step_000001"):
        store.load_latest()


def test_where_nothing_was_better_than_the_start_it_is_no_best_checkpoint(store):
    for step in 0, 1:
        store.save(step, write("a"))
    store.mark_best(0)
    with pytest.raises(FolderError, match=r"the start itself: give --checkpoint last ") as error:
        store.load_named("best", "--checkpoint ")
    assert "\n" not in str(error.value)
    assert store.load_named("last", "--checkpoint ").name == "step_000001"
    assert store.load_named("start", "--checkpoint ").name == "step_000000"


def test_a_checkpoint_under_the_name_of_another_step_is_refused(store):
    store.save(1, write("a"))
    store.save(2, write("b")).rename(store.folder / "step_000003")
    with pytest.warns(UserWarning, match="step_000003.*is about step 2"):
        assert store.load_latest() == store.folder / "step_000001"


def test_training_that_went_back_goes_on_from_its_own_checkpoint(store):
    for step in (5, 10):
        store.save(step, write("first"))
    for step in (6, 10):  # after a resume from 5
        store.save(step, write("second"))
        assert newest(store) == (step, "second")
    assert steps(store) == ["step_000006", "step_000010"]
