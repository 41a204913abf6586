"""Run folders and models that do not fit a command, and what a refusal leaves as it was."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.commands import contents, evaluation, trained, training
from tests.helpers.configs import composed
from wordle_rl.commands.build import build_experiment, resolve
from wordle_rl.commands.train import train
from wordle_rl.runs.files import StepLog
from wordle_rl.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    """A run of a wider model, trained on all words."""
    line = "model.shape.hidden_size=64 words.protocol=all trainer.steps=1"
    return trained(tmp_path_factory.mktemp("runs") / "all", line)


def test_a_run_folder_in_use_is_not_resumed_but_can_be_evaluated(
    run: Path, tmp_path: Path, refused
) -> None:
    before, manifest = contents(run), (run / "manifest.json").read_bytes()
    with RunFolder.open(run).lock():
        message = refused(training(f"resume={run} trainer.steps=3"))
        assert str(run) in message and str(os.getpid()) in message
        evaluation(f"run={run} output_dir={tmp_path} compare=false limit=2 backend.threads=1")()
    assert contents(run) == before and (run / "manifest.json").read_bytes() == manifest


REFUSALS = {
    "model=qwen3b": "keeps model",
    "words.protocol=all": "words",
    "rollout.form=fresh": "rollout.form",
    "init_from=conf": "init_from",
    "reward=phase2": "single values",
    "optim.lr='[1'": "optim.lr",
    "trainer.steps=1": "trainer.steps must be 2 or more, because 2 are done, not 1",
}


@pytest.mark.parametrize("line", REFUSALS)
def test_a_resumed_run_stays_the_same_run(line: str, finished: Path, refused) -> None:
    before = contents(finished)
    args = ["resume=" + str(finished), line]
    config = composed(args[0])
    assert REFUSALS[line] in refused(lambda: train(config, args))
    assert contents(finished) == before


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "config.yaml is not YAML": (lambda r: (r / "config.yaml").write_text("a: [1"), "YAML"),
    "config.yaml has an evil target": (
        lambda r: (r / "config.yaml").write_text(
            (r / "config.yaml").read_text().replace("wordle_rl.policy.optim.Optim", "os.system")
        ),
        "optim._target_",
    ),
    "config.yaml is a bomb of aliases": (
        lambda r: (r / "config.yaml").write_text(
            "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{f'*a{i},' * 9}]\n" for i in range(9))
        ),
        "as YAML (has an alias",
    ),
    "config.yaml is 60,000 levels deep": (  # which a parser could be at for half an hour
        lambda r: (r / "config.yaml").write_text("[" * 60_000 + "]" * 60_000),
        "more than 20 levels",
    ),
    "config.yaml is too large": (
        lambda r: (r / "config.yaml").write_text("a: 1\n" * 2**19),
        "config.yaml: larger than 131,072 letters",
    ),
    "the lock is a link": (
        lambda r: [(r / ".lock").unlink(missing_ok=True), (r / ".lock").symlink_to("config.yaml")],
        ".lock: must be a file, not a link",
    ),
    "manifest.json is too large": (
        lambda r: os.truncate(r / "manifest.json", 2**27),
        "larger than 67,108,864 bytes",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_spoilt_run_folder_is_named(kind: str, run: Path, refused) -> None:
    spoil, message = FAULTS[kind]
    spoil(run)
    before = contents(run)
    line = refused(training(f"resume={run}"))
    assert message in line and str(run) in line
    assert contents(run) == before


def test_a_setting_of_a_run_that_is_refused_is_said_to_be_the_runs(run: Path, refused) -> None:
    file = run / "config.yaml"
    text = file.read_text()
    file.write_text(text.replace("optim:\n", "optim:\n  newer: 1\n"))
    for args in (f"resume={run}", f"resume={run} trainer.steps=3", f"init_from={run} seed=3"):
        assert f"error: {file}: optim has no setting newer" in refused(training(args))
    file.write_text(text)
    line = refused(training(f"init_from={run} trainer.validate_every=0"))
    assert "config.yaml" not in line and "trainer.validate_every must be" in line


@pytest.mark.parametrize("part", ["model", "checkpoints/step_000001/model"])
def test_a_model_says_wherever_it_is_copied_what_it_was_trained_on(
    part: str, other: Path, tmp_path: Path, refused
) -> None:
    for model in (other / part, shutil.copytree(other / part, tmp_path / "elsewhere" / "m")):
        line = f"words.test=6 words.val=6 model.path={model}"
        message = refused(training(line))
        assert str(model) in message and other.name in message and "words.protocol=all" in message
        assert build_experiment(resolve(composed(*line.split(), "words.protocol=all"))).test
        message = refused(training(f"{line} words.protocol=all prompt=letters"))
        assert "had prompt=symbols prompt.think=false;" in message


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(run: Path) -> None:
    cut(run / "checkpoints" / "step_000002" / "model" / "model.safetensors")
    with pytest.warns(UserWarning, match=r"step_000002.*going on from step_000001"):
        training(f"resume={run} trainer.steps=3")()
    assert [record["step"] for record in StepLog(run / "metrics.jsonl").read()] == [0, 1, 2, 3]


def test_without_any_whole_checkpoint_nothing_is_touched(run: Path, refused) -> None:
    for path in run.glob("checkpoints/step_*/optimizer.safetensors"):
        cut(path)
    before = contents(run)
    assert "step_000002/optimizer.safetensors" in refused(training(f"resume={run} trainer.steps=3"))
    assert "optimizer.safetensors" in refused(evaluation(f"run={run} output_dir={run.parent}"))
    assert contents(run) == before


def test_a_checkpoint_of_another_model_is_refused(run: Path, other: Path, refused) -> None:
    shutil.rmtree(run / "checkpoints" / "step_000002")
    folder = shutil.copytree(
        other / "checkpoints" / "step_000001", run / "checkpoints/step_000001", dirs_exist_ok=True
    )
    before = contents(run)
    line = refused(training(f"resume={run} trainer.steps=3"))
    assert f"{folder}/model/model.safetensors belongs to another model" in line
    assert contents(run) == before
