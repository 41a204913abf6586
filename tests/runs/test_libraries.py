"""A library that is not installed is named in one line, with what to do about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.configs import composed
from wordle_rl.runs.errors import user_errors
from wordle_rl.runs.paths import ROOT

# Runs a command as if a library were not installed.
WITHOUT = """
import runpy, sys

library = sys.argv[1]

class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse)
sys.argv[:2] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PIP = "pip install -c constraints.txt -e"


@pytest.mark.parametrize(
    ("library", "command", "told"),
    [
        ("psutil", "train.py model=micro", f"psutil is not installed: {PIP} ."),
        pytest.param(
            "mlx_lm", "train.py model=micro backend=mlx", f"{PIP} '.[mlx]'", marks=pytest.mark.slow
        ),
        ("typer", "wordle_rl/__main__.py runs", f"typer is not installed: {PIP} ."),
    ],
)
def test_a_library_that_is_missing_is_named(library, command, told, tmp_path):
    given = [f"output_dir={tmp_path}"] if command.startswith("train.py") else []
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, library, *command.split(), *given],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ") and told in done.stderr
    assert not list(tmp_path.iterdir())  # a run folder was not begun, or is gone


def test_a_python_without_the_project_s_environment_is_told_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "train.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: ") and f"{PIP} ." in done.stderr


def test_an_adapter_without_peft_is_no_damaged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wordle_rl.backends.torch.load import load_model
    from wordle_rl.commands.build import resolve
    from wordle_rl.policy.settings import ModelSettings
    from wordle_rl.runs.instantiate import instantiate

    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text('{"peft_type": "LORA"}')
    config = resolve(composed(f"model.path={tmp_path}"))
    settings = instantiate("model", config["model"], ModelSettings)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        load_model(settings, precision="fp32", device="cpu")
    with pytest.raises(SystemExit, match="2"), user_errors():
        raise caught.value
