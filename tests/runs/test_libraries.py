"""A library that is not installed is named in one line, with what to do about it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wordle_rl.backends
import wordle_rl.sweeps
from tests.helpers.configs import composed
from wordle_rl.commands.train import train
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.paths import ROOT

OURS = ("wordle_rl.backends", "wordle_rl.sweeps")  # that import libraries at their top
NEEDED = {"torch": "train", "mlx_lm": "train backend=mlx", "optuna": "judge"}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes a library as if it were not installed: whatever imports it is imported anew."""
    before = dict(sys.modules)
    monkeypatch.setattr(wordle_rl, "backends", wordle_rl.backends)  # put back afterwards
    monkeypatch.setattr(wordle_rl, "sweeps", wordle_rl.sweeps)

    blocked: list[str] = []

    def touched(name: str) -> bool:
        return name.startswith(OURS) or name.partition(".")[0] in blocked

    def block(library: str) -> None:
        blocked.append(library)
        for name in filter(touched, before):
            del sys.modules[name]
        sys.modules[library] = None  # type: ignore[assignment]

    yield block
    for name in set(filter(touched, sys.modules)) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def command(line: str, folder: Path) -> Callable[[], object]:
    words = line.split()
    if words[0] == "judge":
        from wordle_rl.commands.judge import judge

        return lambda: judge(str(ROOT / "sweeps" / "gen_count"))
    overrides = [*words[1:], f"output_dir={folder}", "model=micro"]
    return lambda: train(composed(*overrides), overrides)


@pytest.mark.parametrize("library", NEEDED)
def test_a_library_that_is_missing_is_named(
    library: str, tmp_path: Path, refused, without: Callable[[str], None]
) -> None:
    without(library)
    told = refused(command(NEEDED[library], tmp_path))
    assert library.replace("_", "-") in told and "pip install" in told
    assert not list(tmp_path.iterdir())  # a run folder was not begun, or is gone


@pytest.mark.parametrize("library", ["tensorboard", "wandb"])
def test_a_logger_without_its_library_is_refused_before_anything_is_written(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wordle_rl.backends.loggers import build_loggers
    from wordle_rl.training.experiment import LoggerSettings

    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=rf"{library} is not installed: pip install"):
        build_loggers(LoggerSettings(**{"tensorboard": False, library: True}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_adapter_without_peft_is_no_damaged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wordle_rl.backends.torch.load import load_model
    from wordle_rl.commands.build import build_model_settings, resolve

    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text('{"peft_type": "LORA"}')
    settings = build_model_settings(resolve(composed(f"model.path={tmp_path}"))["model"])
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        load_model(settings, precision="fp32", device="cpu")
    with pytest.raises(SystemExit, match="2"), user_errors():
        raise caught.value


def test_a_python_without_the_project_s_environment_is_told_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "train.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        done.stderr.startswith("error: ") and "pip install -c constraints.txt -e ." in done.stderr
    )
