"""Run and model folders that a stranger made: whatever is in them, a command says so in one line.

Nothing outside such a folder is read as ours or written, no damage hangs a command, and no text in
it steers the terminal.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.helpers.commands import evaluation, training
from tests.helpers.configs import composed
from wordle_rl.build import resolve
from wordle_rl.earlier_run import read_saved_config
from wordle_rl.evaluation import tables
from wordle_rl.resolved_choices import print_choices
from wordle_rl.runs.checkpoints import CheckpointError, CheckpointStore
from wordle_rl.runs.files import StepLog, write_json
from wordle_rl.runs.folder import RunFolder
from wordle_rl.runs.untrusted import FolderError, printable
from wordle_rl.training.start_report import read_report
from wordle_rl.training.state import RunState

Damage = Callable[[Path], object]
STATE = {
    "step": 2, "best": [0.5, -4.0], "best_step": 2, "start": [0.25, -5.0, 1.0],
    "totals": {"games": 8.0}, "failures": 0, "curriculum": {},
}  # fmt: skip


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may spoil."""
    return shutil.copytree(finished, tmp_path / "runs" / "run")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run folder as one looks from outside; its model is no model."""
    path = tmp_path_factory.mktemp("runs") / "run"
    folder = RunFolder(path)
    path.mkdir()
    config = resolve(composed("model=micro", "logger=none", "trainer.steps=2"))
    (path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    folder.write_manifest(seeds={"seed": 0}, digests={"words": "a", "splits": "b"}, command=["x"])
    folder.set_status("finished")
    folder.metrics_log().append(0, {"val/win_rate": 0.5})
    folder.games_log().append(0, {"secret": "crane"})
    for name in ("tensorboard", "csv", "model"):
        (path / name).mkdir()
        (path / name / "file").write_text("x")
    write_json(path / "start.json", {})
    write_json(path / "summary.json", {})

    def write(checkpoint: Path) -> None:
        (checkpoint / "model").mkdir()
        (checkpoint / "model" / "config.json").write_text("{}")
        (checkpoint / "model" / "model.safetensors").write_text("garbage")
        (checkpoint / "optimizer.pt").write_text("garbage")
        write_json(checkpoint / "state.json", STATE)

    store = CheckpointStore(folder.checkpoints)
    store.save(2, write)
    store.mark_best(2)
    return path


def edit(name: str, change: Callable[[Any], object]) -> Damage:
    """Changes a JSON file: `change` alters the value, or returns another one."""

    def damage(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        changed = change(value)
        (folder / name).write_text(json.dumps(value if changed is None else changed))

    return damage


def manifest(**entries: Any) -> Damage:
    return edit("manifest.json", lambda value: value.update(entries))


def text(name: str, content: str) -> Damage:
    return lambda folder: (folder / name).write_text(content)


def added(name: str, content: str) -> Damage:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + content)


def pipe(name: str) -> Damage:
    return lambda folder: ((folder / name).unlink(), os.mkfifo(folder / name))


def error_of(read: Callable[[], object]) -> str:
    """The one line that reading a file ends with."""
    with pytest.raises(ValueError) as error:
        read()
    assert len(str(error.value)) < 1000
    return str(error.value)


def command(line: str) -> Callable[[], object]:
    return (evaluation if line.startswith("run=") else training)(line)


# nine levels of ten are a thousand million values
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
COMMANDS = ("resume={run}", "init_from={run}", "run={run}")
CONFIGS: dict[str, tuple[Damage, str]] = {
    "nested aliases": (added("config.yaml", BOMB), "anchors and aliases are not allowed"),
    "a list in itself": (added("config.yaml", "a: &a [*a]\n"), "anchors and aliases"),
    "deep lists": (added("config.yaml", f"a: {'[' * 5000}"), "more than 20 levels"),
    "many values": (added("config.yaml", f"a: [{'1,' * 20_000}]"), "more than 5000 names"),
    "a large file": (added("config.yaml", "#" * 200_000), "larger than 100,000 bytes"),
    "the environment": (added("config.yaml", "a: ${oc.env:HOME}\n"), "references are not"),
    "references in a circle": (added("config.yaml", "a: ${b}\nb: ${a}\n"), "references are not"),
    "Python objects": (added("config.yaml", "a: !!python/name:os.system\n"), "tags are not"),
    "a long number": (added("config.yaml", f"a: {'9' * 5000}\n"), "config.yaml"),
    "numbers as names": (added("config.yaml", "1: 2\ntrue: 3\n"), "must be text"),
    "escape sequences": (added("config.yaml", 'a: "\\e[2J"\n'), "control characters"),
    "no groups": (text("config.yaml", "model: 5\n"), "model must be a group of settings"),
    "a pipe": (pipe("config.yaml"), "config.yaml is missing"),
}
MANIFESTS: dict[str, tuple[Damage, str]] = {
    "digests in a list": (manifest(digests=[]), "digests must be names with text each, not []"),
    "digests of numbers": (manifest(digests={"words": 5}), "digests must be"),
    "a number of resumes": (manifest(resumes=5), "resumes must be a list"),
    "resumes of numbers": (manifest(resumes=[5]), "resumes must be a list"),
    "computing of a resume": (manifest(resumes=[{"computing": []}]), "computing must be"),
    "computing": (manifest(computing="fp32"), "computing must be"),
    "precision": (manifest(computing={"precision": "\x1b[2J"}), "precision must be one of"),
    "a status in a list": (manifest(status=["\x1b[2J"]), "status must be text"),
    "a prompt in a list": (manifest(prompt=[]), "prompt must be text or null"),
    "NaN": (manifest(seeds={"seed": float("nan")}), "manifest.json: not JSON"),
    "a huge number": (text("manifest.json", '{"a": 1e999}'), "manifest.json: not JSON"),
    "a long number": (text("manifest.json", f'{{"a": {"9" * 5000}}}'), "manifest.json: not JSON"),
    "deep lists": (text("manifest.json", '{"a":' + "[" * 100_000), "too deeply nested"),
    "rather deep lists": (
        text("manifest.json", '{"a":' + "[" * 300 + "]" * 300 + "}"), "too deeply nested"
    ),
    "a large file": (added("manifest.json", " " * 5_000_000), "larger than 4,000,000 bytes"),
    "half a letter": (manifest(status="\ud800", digests=[]), "digests must be"),
    "a pipe": (pipe("manifest.json"), "is a pipe, not a file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_that_no_run_wrote_is_refused(kind: str, run: Path) -> None:
    damage, told = CONFIGS[kind]
    assert read_saved_config(RunFolder.open(run))
    damage(run)
    line = error_of(lambda: read_saved_config(RunFolder.open(run)))
    assert told in line and str(run / "config.yaml") in line


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_that_no_run_wrote_is_refused(kind: str, run: Path) -> None:
    damage, told = MANIFESTS[kind]
    damage(run)
    line = error_of(lambda: RunFolder.open(run))
    assert told in line and str(run / "manifest.json") in line


@pytest.mark.parametrize("kind", ["nested aliases", "the environment", "digests in a list"])
@pytest.mark.parametrize("line", COMMANDS)
def test_commands_refuse_them_in_one_line(
    kind: str, line: str, run: Path, refused: Callable
) -> None:
    damage, told = {**CONFIGS, **MANIFESTS}[kind]
    damage(run)
    assert told in refused(command(line.format(run=run)))


@pytest.mark.parametrize("line", COMMANDS)
def test_a_class_in_a_config_that_is_none_of_ours_is_not_called(
    line: str, run: Path, refused: Callable
) -> None:
    saved: Any = OmegaConf.load(run / "config.yaml")
    for node in ("prompt", "backend", "rules", "words"):
        saved[node]._target_ = "os.system"
    OmegaConf.save(saved, run / "config.yaml")
    told = refused(command(line.format(run=run)))
    assert "_target_ must be" in told and "'os.system'" in told


def test_a_status_cannot_steer_the_terminal(run: Path, refused: Callable) -> None:
    steering = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.exe\ud800\rerror: "
    manifest(status=f"{steering}fine")(run)
    line = refused(command(f"init_from={run}"))
    assert "the run is ?[2J?]0;title??31m?gnp.exe? error: fine, not finished" in line


def test_a_folder_whose_name_steers_the_terminal_is_refused(run: Path) -> None:
    moved = run.rename(run.with_name("run\x1b[2J"))
    assert "rename it, its path holds control characters" in error_of(lambda: RunFolder.open(moved))


# -- links ----------------------------------------------------------------------------------------

WRITTEN = [
    *(".lock", "manifest.json", "config.yaml", "metrics.jsonl", "games.jsonl", "start.json"),
    "validation_games.jsonl",
    *("summary.json", "start_games.jsonl", "model", "tensorboard", "csv", "checkpoints"),
    *(
        "checkpoints/last",
        "checkpoints/best",
        "checkpoints/step_000002",
        "model/file",
        "tensorboard/file",
    ),
    "wandb",
]


def everything(folder: Path) -> dict[str, bytes]:
    """All files with content; an empty .lock may have been made."""
    files = {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return {name: content for name, content in files.items() if content}


def lock(run: Path) -> None:
    with RunFolder.open(run).lock():
        pass


def linked(place: Path, outside: Path) -> None:
    """Moves what lies there outside, and puts a link in its place."""
    if place.exists():
        shutil.move(place, outside)
    else:
        outside.write_text("precious")
    place.symlink_to(outside)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_folder_with_a_link_inside_is_not_written_to(
    name: str, run: Path, tmp_path: Path
) -> None:
    linked(run / name, tmp_path / "outside")
    before = everything(tmp_path)
    assert f"{run / name}: is a link" in error_of(lambda: lock(run))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "games.jsonl", "model/file"])
def test_a_file_that_has_a_name_outside_is_not_written_to(
    name: str, run: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (run / name).unlink(missing_ok=True)
    os.link(outside, run / name)
    assert f"{run / name}: has another name elsewhere" in error_of(lambda: lock(run))
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "start.json", "tensorboard/file"])
def test_a_pipe_inside_a_run_folder_is_not_waited_for(name: str, run: Path) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    assert f"{run / name}: is a pipe, not a file" in error_of(lambda: lock(run))


@pytest.mark.parametrize("name", [".lock", "checkpoints", "metrics.jsonl"])
def test_a_run_with_a_link_inside_is_not_resumed(
    name: str, run: Path, tmp_path: Path, refused: Callable
) -> None:
    linked(run / name, tmp_path / "outside")
    before = everything(tmp_path)
    assert f"{run / name}: is a link" in refused(training(f"resume={run} trainer.steps=9"))
    assert everything(tmp_path) == before


def test_a_run_folder_may_be_reached_through_a_link_and_share_checkpoints(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wordle_rl.train.load_backend", lambda _: pytest.fail("reached"))
    os.link(run / "checkpoints/step_000002/optimizer.pt", tmp_path / "backup")
    (run / "wandb").mkdir()
    (run / "wandb" / "latest-run").symlink_to("offline-run")  # wandb's own
    (tmp_path / "outputs").symlink_to(run.parent)
    with pytest.raises(pytest.fail.Exception, match="reached"):
        training(f"resume={tmp_path / 'outputs' / 'run'}")()


# -- checkpoints ----------------------------------------------------------------------------------


def listed(change: Callable[[dict], object]) -> Damage:
    return edit("checkpoint.json", change)


def renamed(name: str) -> Damage:
    """Lists the state under another name."""
    return listed(lambda m: m["files"].update({name: m["files"].pop("state.json")}))


CHECKPOINTS: dict[str, tuple[Damage, str]] = {
    "a path upwards": (renamed("../../manifest.json"), "'../../manifest.json' is no file"),
    "an absolute path": (renamed("/etc/passwd"), "'/etc/passwd' is no file"),
    "a folder": (renamed("model"), "is a folder, not a file"),
    "an escape sequence": (renamed("\x1b[2J"), "is no file"),
    "bytes as text": (listed(lambda m: m["files"]["state.json"].update(bytes="9")), "bytes must"),
    "bytes as truth": (listed(lambda m: m["files"]["state.json"].update(bytes=True)), "bytes must"),
    "a digest of numbers": (listed(lambda m: m["files"]["state.json"].update(sha256=5)), "sha256"),
    "no digest": (listed(lambda m: m["files"]["state.json"].pop("sha256") and None), "missing"),
    "a negative step": (listed(lambda m: m.update(step=-1)), "is about step -1"),
    "a step as truth": (listed(lambda m: m.update(step=True)), "step must be a whole number"),
    "a step as text": (listed(lambda m: m.update(step="2")), "step must be a whole number"),
    "files in a list": (listed(lambda m: m.update(files=[])), "files must be"),
    "a list": (listed(lambda m: [m]), "not a JSON object"),
    "deep lists": (text("checkpoint.json", "[" * 100_000), "too deeply nested"),
    "a large file": (added("checkpoint.json", " " * 5_000_000), "larger than"),
    "a pipe": (pipe("checkpoint.json"), "is a pipe, not a file"),
    "a pipe as state": (pipe("state.json"), "is a pipe, not a file"),
    "a link": (lambda f: (f / "link").symlink_to("/etc/passwd"), "is a link"),
    "a link as model": (
        lambda f: ((f / "model").rename(f.parent / "m"), (f / "model").symlink_to("../m")),
        "is a link",
    ),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_whose_list_is_foul_is_refused(kind: str, run: Path) -> None:
    damage, told = CHECKPOINTS[kind]
    path = run / "checkpoints" / "step_000002"
    damage(path)
    store = CheckpointStore(run / "checkpoints", read_only=True)
    with pytest.raises(CheckpointError, match=str(path)) as error:
        store.load(path)
    line = str(error.value)
    assert told in line and line == printable(line) and len(line) < 1000
    with pytest.raises(CheckpointError, match="no unbroken checkpoint left"):
        store.load_latest()


def test_a_large_pointer_to_a_checkpoint_is_not_read(run: Path) -> None:
    for name in ("last", "best"):
        (run / "checkpoints" / name).write_text("step_000002" + " " * 100_000)
    store = CheckpointStore(run / "checkpoints", read_only=True)
    assert store.best() is None
    with pytest.warns(UserWarning, match="last: names a checkpoint that is not there"):
        assert store.load_latest().step == 2


CHOICES: dict[str, tuple[dict[str, Any], str | None]] = {  # and the error, None for none
    "no backend": ({"choices": {"model": "tiny"}}, None),
    "a long option": ({"choices": {"model": "a" * 3000}}, None),
    "a path": ({"choices": {"model": "../../../etc/passwd"}}, None),
    "a group of its own": ({"choices": {"../model": "tiny"}}, None),
    "no text": ({"choices": {"model": 5}}, "choices must be"),
    "a number as command": ({"command": 5}, "command must be"),
}


@pytest.mark.parametrize("kind", CHOICES)
def test_the_choices_in_a_manifest_cannot_end_a_run(kind, run, refused):
    entries, error = CHOICES[kind]
    manifest = json.loads((run / "manifest.json").read_text())
    write_json(run / "manifest.json", manifest | entries)
    if error is None:
        folder = RunFolder.open(run)
        print_choices(folder, {**read_saved_config(folder), "init_from": "elsewhere"})
    else:
        assert error in refused(training(f"resume={run} trainer.steps=3"))


STATES: dict[str, tuple[Damage, str]] = {
    "no JSON": (text("state.json", "garbage"), "not JSON"),
    "a list": (text("state.json", "[]"), "not a JSON object"),
    "NaN": (edit("state.json", lambda s: s.update(best=[float("nan"), 1])), "not JSON"),
    "an entry less": (edit("state.json", lambda s: s.pop("totals") and None), "totals is missing"),
    "the step as text": (edit("state.json", lambda s: s.update(step="2")), "step must be"),
    "another step": (edit("state.json", lambda s: s.update(step=3)), "is about step 3"),
    "a negative step": (edit("state.json", lambda s: s.update(best_step=-1)), "0 or more"),
    "best of four": (edit("state.json", lambda s: s.update(best=[1, 2, 3, 4])), "three numbers"),
    "best as text": (edit("state.json", lambda s: s.update(best=["a", "b"])), "best must be"),
    "a start of one": (edit("state.json", lambda s: s.update(start=[1])), "start must be three"),
    "totals in a list": (edit("state.json", lambda s: s.update(totals=[])), "totals must be"),
    "totals as text": (edit("state.json", lambda s: s.update(totals={"games": "8"})), "totals"),
    "failures": (edit("state.json", lambda s: s.update(failures=None)), "failures must be"),
    "curriculum": (edit("state.json", lambda s: s.update(curriculum=[])), "curriculum must be"),
    "deep lists": (text("state.json", "[" * 100_000), "too deeply nested"),
    "nothing": (lambda f: (f / "state.json").unlink(), "missing"),
}


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_no_run_wrote_is_refused(kind: str, run: Path) -> None:
    damage, told = STATES[kind]
    path = run / "checkpoints" / "step_000002"
    read = asdict(RunState.read(path))
    assert read == STATE | {"totals": read["totals"]} and read["totals"]["games"] == 8.0
    damage(path)
    with pytest.raises(CheckpointError, match=r"step_000002/state\.json") as error:
        RunState.read(path)
    assert told in str(error.value)


# -- logs and reports -----------------------------------------------------------------------------


def test_a_line_without_an_end_is_not_read_whole(run: Path, monkeypatch) -> None:
    monkeypatch.setattr("wordle_rl.runs.files._LONGEST", 100)
    added("metrics.jsonl", '{"step": 1, "a": "' + "a" * 1000)(run)
    with pytest.raises(FolderError, match="line 2: not a JSON record"):
        StepLog(run / "metrics.jsonl").read()


REPORTS: dict[str, Callable[[dict], object]] = {
    "an entry less": lambda r: r.pop("win_rate") and None,
    "a number as text": lambda r: r.update(win_rate="1"),
    "rules in a list": lambda r: r.update(rules=[]),
    "a histogram of text": lambda r: r.update(histogram={"1": "a"}),
    "turns of numbers": lambda r: r.update(by_turn={"2": 5}),
    "a turn of text": lambda r: r.update(by_turn={"2": {"consistency": "a"}}),
}


def report(run: Path) -> dict[str, Any]:
    """A report as eval.py writes it, of one game."""
    found = evaluation(f"player=random limit=1 compare=false output_dir={run.parent}")()
    write_json(run / "start.json", found)
    return found


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_that_cannot_be_shown_is_named(kind: str, run: Path) -> None:
    report(run)
    assert tables.report_table([read_report(run / "start.json")])
    edit("start.json", REPORTS[kind])(run)
    with pytest.raises(FolderError, match=str(run / "start.json")):
        read_report(run / "start.json")


def test_a_folder_error_while_a_model_plays_is_one_line_too(refused: Callable) -> None:
    def play() -> None:
        raise CheckpointError("checkpoints/step_000001:\nspoilt \x1b[2J")

    assert refused(play) == "error: checkpoints/step_000001: spoilt ?[2J"
