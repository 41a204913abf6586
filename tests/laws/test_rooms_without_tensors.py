"""The tests of words, games, prompts, rewards and evaluation need no library of tensors.

    pytest tests/words tests/game tests/prompts tests/rewards tests/evaluation

is therefore a loop of seconds. The slow test here runs them where none of those can be imported.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from wordle_rl.runs.paths import ROOT

pytestmark = pytest.mark.slow

FOLDERS = [f"tests/{room}" for room in ("words", "game", "prompts", "rewards", "evaluation")]
LIBRARIES = (
    *("torch", "lightning", "transformers", "tokenizers", "safetensors", "peft", "tensorboard"),
    *("mlx", "mlx_lm"),
)
BLOCKED = f"""
import sys

class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {LIBRARIES}:
            raise ImportError(f"{{name}} is not installed")

sys.meta_path.insert(0, Refuse)
import pytest

sys.exit(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def run_blocked(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip


def test_the_block_is_felt():
    done = run_blocked("--collect-only", "tests/backends/test_hub.py")
    assert done.returncode != 0 and "torch is not installed" in done.stderr


def test_the_rooms_left_of_the_tensors_are_tested_without_them():
    done = run_blocked("-m", "not slow", *FOLDERS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
