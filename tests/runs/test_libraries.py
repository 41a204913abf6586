"""A library that is not installed is named in one line, with what to do about it."""

import subprocess
import sys

import pytest

from tests.helpers.commands import error_of
from wordle_rl.runs import errors
from wordle_rl.runs.paths import ROOT

# Runs a command as if a library were not installed.
SCRIPT = """
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
# For the Python that ran, as the one on the PATH may be another one.
PIP = f"{sys.executable} -m pip install -c constraints.txt -e"


@pytest.mark.parametrize(
    ("library", "command", "told"),
    [
        ("psutil", "train.py model=micro output_dir={}", f"psutil is not installed: {PIP} ."),
        pytest.param(
            "mlx_lm",
            "train.py model=micro backend=mlx output_dir={}",
            f"{PIP} '.[mlx]'",
            marks=pytest.mark.slow,
        ),
        ("typer", "wordle_rl/__main__.py runs", f"typer is not installed: {PIP} ."),
    ],
)
def test_a_library_that_is_missing_is_named(library, command, told, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, library, *command.format(tmp_path).split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 2 and told in error_of(result.stderr)
    assert not list(tmp_path.iterdir())  # a run folder was not begun, or is gone


def test_another_python_than_that_of_the_project_is_told_to_use_it(monkeypatch, tmp_path):
    monkeypatch.setattr(errors, "ROOT", tmp_path)
    assert "pip install" in errors.advice("hydra")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert errors.advice("hydra").endswith(f"source {tmp_path}/.venv/bin/activate")
    assert "pip install" in errors.advice("mlx")  # the project's may lack it, too
