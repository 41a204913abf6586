"""Commands as a user types them, run in this process; and a disk that is full."""

import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.helpers.configs import composed
from wordle_rl.commands.eval import evaluate
from wordle_rl.commands.train import train
from wordle_rl.runs.config import expand
from wordle_rl.runs.paths import ROOT

SMALL_RUN = (
    "experiment=none model=untrained model.shape='{hidden_size: 32, layers: 2, heads: 4, "
    "kv_heads: 2, intermediate_size: 64}' algorithm=sft num_generations=1 words.test=6 words.val=6 "
    "rules.max_turns=3 rollout.groups=4 backend.precision=fp32 backend.accelerator=cpu "
    "backend.threads=1 logger=none trainer.report=false trainer.show_games=0 trainer.steps=2 "
    "trainer.validate_every=9 trainer.checkpoint_every=1 name=small"
)


def training(line: str) -> Callable[[], object]:
    """What `python train.py <line>` does."""
    overrides = shlex.split(line)
    return lambda: train(composed(*overrides), expand(overrides))


def evaluation(line: str) -> Callable[[], object]:
    """What `python eval.py <line>` does."""
    overrides = shlex.split(line)
    return lambda: evaluate(composed(*overrides, name="eval"), overrides)


def trained(root: Path, line: str = "") -> Path:
    """The folder of a small run that was trained into root."""
    root.mkdir(exist_ok=True)
    training(f"{SMALL_RUN} output_dir={root} {line}")()
    [folder] = root.iterdir()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which lists every attempt to resume, and the lock."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.parent != folder]
    files += [p for p in folder.glob("*.*") if p.is_file() and p.name != "manifest.json"]
    return {str(p): p.read_bytes() for p in files if p.name != ".lock"}


def error_of(text: str) -> str:
    """The line about an error on standard error. Above it, a slow command says what it does."""
    [line] = [line for line in text.splitlines() if line.startswith("error: ")]
    assert text.rstrip().endswith(line) and "Traceback" not in text
    return line


def command(*arguments: str, **options: object) -> tuple[subprocess.CompletedProcess, float]:
    """A command as a user types it, and the seconds of processor that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, **options
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
