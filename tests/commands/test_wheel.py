"""The wheel in an empty folder, without a checkout near: it trains, resumes and evaluates."""

import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from wordle_rl.runs.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SETTINGS = (
    "experiment=none model=micro rollout.groups=2 num_generations=2 backend.threads=1 "
    "backend.accelerator=cpu words.test=6 words.val=6 trainer.steps=2 trainer.show_games=0 "
    "trainer.report=false"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the files that the project needs for it."""
    folder = tmp_path_factory.mktemp("build")
    patterns = shutil.ignore_patterns("__pycache__")
    for name in ("wordle_rl", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / name, folder / "project" / name, ignore=patterns)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "project")
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    result = subprocess.run(
        [sys.executable, "-m", *command, folder, folder / "project"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    [file] = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, which sees this one's other packages."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", wheel], check=True)
    # An editable install of the project there has a .pth file, which a path on sys.path is not
    # searched for, unlike a folder of site-packages.
    paths = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (packages / "others.pth").write_text("\n".join(paths) + "\n")
    return folder / "bin"


@pytest.fixture
def run(installed: Path, tmp_path: Path):
    """Runs wordle-rl in an empty folder, where nothing says where the checkout is."""

    def run(line: str, code: int = 0) -> str:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        result = subprocess.run(
            [installed / "wordle-rl", *line.split()],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert result.returncode == code, result.stdout + result.stderr
        assert str(ROOT) not in result.stdout + result.stderr
        return result.stdout + result.stderr

    return run


def test_it_has_all_choices_and_the_commands(run, installed):
    [packages] = installed.parent.glob("lib/python*/site-packages")
    conf = {path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")}
    root = packages / "wordle_rl" / "conf"
    assert conf == {path.relative_to(root) for path in root.rglob("*.yaml")}
    assert not (packages / "conf").exists()
    assert (packages / "hydra_plugins" / "wordle_rl_sweeper.py").is_file()
    assert "\n  train " in run("--help")
    assert "wordle-rl train" in run("train --help")


def test_a_run_with_parts_of_ones_own_trains_resumes_and_is_evaluated_here(run, tmp_path):
    shutil.copytree(ROOT / "examples" / "own_parts", tmp_path / "mine")
    settings = "reward=vowel history=upto4 history.player=parts.Varied algorithm=dr_grpo"
    text = run(f"train --config-dir mine {settings} algorithm._target_=parts.ByState {SETTINGS}")
    assert "/wordle-rl eval --config-dir=" in text
    [folder] = (tmp_path / "outputs").iterdir()
    assert (folder / "summary.json").is_file()
    assert "reward/vowel" in (folder / "metrics.jsonl").read_text()
    command = f"train resume=outputs/{folder.name} trainer.steps=3"
    assert "history.player must be" in run(command, code=2)
    assert " step 3/3 " in run(f"{command} --config-dir=mine")
    run(f"eval run=outputs/{folder.name} limit=5 compare=false -cd mine")
    assert {path.name for path in tmp_path.iterdir()} == {"outputs", "mine"}
    assert "did you mean experiment" in run("train experimnt=demo", code=2)
